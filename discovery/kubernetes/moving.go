package kubernetes

import (
	"cmp"
	"net"
	"slices"
	"time"

	"github.com/calinix/caddy-calinix/config"
)

// grace is how long a pod is still reported that no slice lists any more.
//
// When slices are packed an endpoint goes from one to another, and the two are not
// written at once: in between it may be in neither. If the pod was taken for gone
// meanwhile, its sessions would go elsewhere, and what is known of its cache would be
// forgotten. One that ends is listed as terminating before, and one that is listed as
// not ready is gone at once.
const grace = 200 * time.Millisecond

// moving are the pods that may be on their way to another slice.
type moving struct {
	reported []config.Pod // last
	// left is when grace ends for those of them that are listed nowhere, by their ids.
	left map[string]<-chan time.Time
}

// keep adds to pods those that were reported before and are in grace; names are of all
// that slices list, whatever for. It says whether there are any.
func (m *moving) keep(pods []config.Pod, names map[string]bool, source *Source) ([]config.Pod, bool) {
	left := map[string]<-chan time.Time{}
	for _, p := range m.reported {
		if names[source.nameOf(p.ID)] {
			continue
		}
		end, known := m.left[p.ID]
		if !known {
			end = time.After(grace)
		}
		select {
		case <-end:
		default:
			left[p.ID] = end
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b config.Pod) int { return cmp.Compare(a.ID, b.ID) })
	m.reported, m.left = slices.Clone(pods), left // the sink takes over pods
	return pods, len(left) > 0
}

// nameOf returns the name of the pod with an id.
func (s *Source) nameOf(id string) string {
	if len(s.Ports) > 1 {
		if name, _, err := net.SplitHostPort(id); err == nil {
			return name
		}
	}
	return id
}

package kubernetes

import "go.uber.org/zap"

// note is something about a Service that whoever runs Calinix should know.
type note struct {
	message string
	service string // its name, or the labels by which none is found
	value   string // what is wrong
}

// warn logs the notes that were not there the last time: what is wrong is met again
// at every change of anything.
func (w *watcher) warn(notes map[note]bool) {
	for n := range notes {
		if !w.noted[n] {
			w.source.logger.Warn(n.message, zap.String("namespace", w.source.Namespace),
				zap.String("service", n.service), zap.String("value", n.value))
		}
	}
	w.noted = notes
}

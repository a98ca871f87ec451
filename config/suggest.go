package config

import (
	"reflect"
	"strings"
	"sync"
)

// Nearest returns the one of known that name most likely was meant to be; ok is
// false if none is near.
func Nearest(name string, known []string) (nearest string, ok bool) {
	if len(name) > 64 {
		return "", false
	}
	best := 1 + max(1, len(name)/3)
	for _, k := range known {
		if d := distance(plain(name), plain(k)); d < best {
			best, nearest = d, k
		}
	}
	return nearest, nearest != ""
}

// plain takes away what differs between spellings of one key.
func plain(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// distance is the least number of bytes to insert, remove, replace or swap with
// their neighbour that turns a into b.
func distance(a, b string) int {
	row := func() []int { return make([]int, len(b)+1) }
	before, last, cur := row(), row(), row()
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		cur[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(last[j]+cost, last[j+1]+1, cur[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cur[j+1] = min(cur[j+1], before[j-1]+1)
			}
		}
		before, last, cur = last, cur, before
	}
	return last[len(b)]
}

var allYAMLKeys = sync.OnceValue(func() []string {
	return yamlKeys(reflect.TypeFor[document](), "")
})

// elsewhere returns the full path of the one key of config.yaml that is called
// name, if it is the only one.
func elsewhere(name string) (path string, ok bool) {
	for _, key := range allYAMLKeys() {
		if strings.Contains(key, ".pods.") {
			continue // there are three lists of pods
		}
		if key == name || strings.HasSuffix(key, "."+name) {
			if ok {
				return "", false
			}
			path, ok = key, true
		}
	}
	return path, ok
}

package config

import "strings"

// unavailable is what is said of a key that has a name already, but is not built
// yet.
const unavailable = "not available in this version"

// UnavailableKey tells whether key, in the section at the given path, is one of a
// later version.
func UnavailableKey(path, key string) bool {
	if path == "dispatch" || strings.HasSuffix(path, ".capabilities") {
		return key == "encode" // a pod's, in encode-prefill-decode disaggregation
	}
	return false
}

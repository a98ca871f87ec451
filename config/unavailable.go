package config

import "strings"

// This file lists everything that has a name in the schema but is not built yet.
// It is refused by that name; what gets built leaves this file.

// unavailable is what every refusal of this file says.
const unavailable = "not available in this version"

// UnavailableKey tells whether key, in the section at the given path, is one of a
// later version.
func UnavailableKey(path, key string) bool {
	if path == "dispatch" || strings.HasSuffix(path, ".capabilities") {
		return key == "encode" // a pod's, in encode-prefill-decode disaggregation
	}
	return false
}

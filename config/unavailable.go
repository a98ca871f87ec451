package config

import (
	"slices"
	"strings"
)

// This file lists everything that has a name in the schema but is not built yet.
// It is refused by that name; what gets built leaves this file.

// Keys of a pod that have no place in the structs yet, in both spellings.
var unavailablePodKeys = []string{"models"}

// unavailable is what every refusal of this file says.
const unavailable = "not available in this version"

// UnavailableKey tells whether key, in the section at the given path (a pod's ends
// in "]"), is one of a later version.
func UnavailableKey(path, key string) bool {
	switch {
	case strings.HasSuffix(path, "]"):
		return slices.Contains(unavailablePodKeys, key)
	case path == "dispatch", strings.HasSuffix(path, ".capabilities"):
		return key == "encode" // a pod's, in encode-prefill-decode disaggregation
	default:
		return false
	}
}

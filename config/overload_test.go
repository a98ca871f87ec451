package config

import (
	"strings"
	"testing"
	"time"
)

const overloaded = `
version: 1
gateway: {name: shared, strategy: expectedTTFT}
overload: {}
upstreams: {single: {pods: [{id: a, url: "http://a"}]}}
`

// TestOverloadIsOffUnlessGiven: the section turns it on, empty or not.
func TestOverloadIsOffUnlessGiven(t *testing.T) {
	for section, want := range map[string]*Overload{
		"":             nil,
		"overload:":    nil,
		"overload: {}": {Hold: new(DefaultHold), Order: "shortest", MaxHeld: new(1000), Timeout: new(DefaultHoldTimeout)},
		"overload: {holdMs: 30, maxHeld: 7}": {
			Hold: new(Duration(30 * time.Millisecond)), Order: "shortest", MaxHeld: new(7), Timeout: new(DefaultHoldTimeout),
		},
	} {
		got := mustLoad(t, strings.Replace(overloaded, "overload: {}", section, 1)).Defaults().Overload
		if marshal(t, &Balancer{Overload: got}) != marshal(t, &Balancer{Overload: want}) {
			t.Errorf("%q: %+v", section, got)
		}
	}
}

// TestOverloadIsShared: those that are held wait in one line.
func TestOverloadIsShared(t *testing.T) {
	a := mustLoad(t, overloaded)
	for section, want := range map[string]string{
		"overload: {order: shortest}": "",
		"":                            `overload: on here, off in another place of balancer "shared"`,
		"overload: {holdMs: 200}":     `overload.hold: 100ms here, 200ms in another place of balancer "shared"`,
	} {
		got := ""
		if err := Agree(a, mustLoad(t, strings.Replace(overloaded, "overload: {}", section, 1))); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", section, got, want)
		}
	}
}

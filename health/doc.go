// Package health decides which pods are up.
//
// It stands beside a request's way and before it: the filter of every pick
// asks the fleet which pods are up, and what the fleet says there was told to
// it from here. Two things are watched. Probes ask each pod at an interval,
// and streaks of consecutive results decide. Failed requests, if the operator
// wants it, mark a pod down until it passes probes again.
//
// The Checker lives as long as the fleet: Configure gives it other thresholds,
// another interval or another prober when a configuration changes, and no
// streak is lost by it. Its goroutines run only between Start and Stop. It
// reads no clock; it waits by timers, and passive failures bring their time.
package health

//go:build !race

package testcaddy

// RaceEnabled says that this binary has the race detector; child processes get
// it, too.
const RaceEnabled = false

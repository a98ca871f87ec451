//go:build !linux

package testcaddy

import "os/exec"

// dieWithUs has no counterpart outside Linux.
func dieWithUs(*exec.Cmd) {}

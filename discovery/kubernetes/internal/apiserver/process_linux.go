package apiserver

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel end the process when the test ends, also one that go
// test kills because it hangs.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

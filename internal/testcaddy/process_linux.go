package testcaddy

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill the child when the thread that starts it ends,
// as it does when go test kills a test that hangs.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package power

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Real-time signals by which the common init programs are asked to halt, power off and reboot.
const (
	signalHalt     = syscall.Signal(37)
	signalPowerOff = syscall.Signal(38)
	signalReboot   = syscall.Signal(39)
)

// HandleSignals calls off for every signal that means the end of the machine, and survives those that would end
// another process. A machine cannot reboot itself, so a reboot is a power-off too. The signals are caught, not
// ignored: jobs would inherit that.
func HandleSignals(off func()) {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) // ctrl-alt-del becomes SIGINT
	survived := make(chan os.Signal, 1)
	signal.Notify(survived, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGPIPE,
		syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS)
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPWR, syscall.SIGUSR1, syscall.SIGUSR2,
		signalHalt, signalPowerOff, signalReboot)
	go func() {
		<-ending
		off()
	}()
}

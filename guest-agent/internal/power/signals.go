package power

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Real-time signals that ask common init programs, such as systemd, to halt, power off or reboot.
const (
	signalHalt     = syscall.Signal(37)
	signalPowerOff = syscall.Signal(38)
	signalReboot   = syscall.Signal(39)
)

// HandleSignals calls off for every signal that asks for the end of the machine. A machine cannot reboot itself, so a
// reboot signal powers it off too. The agent survives signals that would end another process. It catches them and does
// not ignore them, because jobs would inherit an ignored signal.
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

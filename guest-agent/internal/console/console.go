// Package console writes the agent's log lines to the machine's console. The host can read the console even after the
// machine has died.
package console

import (
	"os"

	"golang.org/x/sys/unix"
)

const prefix = "sandbar-agent: "

// Log joins parts and writes them as one line to standard error, which is the console after Attach.
func Log(parts ...string) {
	line := make([]byte, 0, 120)
	line = append(line, prefix...)
	for _, part := range parts {
		line = append(line, part...)
	}
	_, _ = os.Stderr.Write(append(line, '\n')) // if the console fails, there is no other place to report it
}

// Attach makes the console the standard output and standard error of the agent, so that the message of a panic appears
// there too. The standard input becomes /dev/null.
func Attach() error {
	null, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	tty, err := unix.Open("/dev/console", unix.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	for target, source := range []int{null, tty, tty} {
		if source == target {
			continue
		}
		if err := unix.Dup3(source, target, 0); err != nil {
			return err
		}
	}
	for _, fd := range []int{null, tty} {
		if fd > 2 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

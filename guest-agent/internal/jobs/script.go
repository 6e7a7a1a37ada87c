// A command can be longer than the kernel allows for one argument. Such a command is written to a file in memory, which
// the shell reads. The file has no name, so other users cannot find it, and the kernel frees it when the shell closes
// it.

package jobs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/process"
)

const (
	// maxArgument is the longest argument that the kernel accepts, in bytes: MAX_ARG_STRLEN without the null byte.
	maxArgument = 32*4096 - 1
	// scriptDescriptor is the descriptor number under which the shell inherits the file.
	scriptDescriptor = 3
	// runScript makes the shell read the file as it would read the text after -c: $0 is /bin/sh, there are no
	// positional parameters, and standard input is the job's own.
	runScript = ". /proc/self/fd/3"
	// closeScript is put before the command, so that programs that the job starts do not inherit the descriptor. The
	// shell itself reads the file through a second descriptor. closeScript has no line break, so that line numbers in
	// error messages stay right.
	closeScript = "exec 3<&-; "
)

// openScript returns an in-memory file that holds the command. Only the account and root may read it.
func openScript(command []byte, who *process.Account) (*os.File, error) {
	fd, err := unix.MemfdCreate("command", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "command")
	if err := fillScript(file, command, who); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func fillScript(file *os.File, command []byte, who *process.Account) error {
	if err := file.Chmod(0o600); err != nil {
		return err
	}
	if err := file.Chown(int(who.UID), int(who.GID)); err != nil {
		return err
	}
	if _, err := file.WriteString(closeScript); err != nil {
		return err
	}
	_, err := file.Write(command)
	return err
}

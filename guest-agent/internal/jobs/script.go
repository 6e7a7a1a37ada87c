// A command can be longer than the kernel allows an argument to be. Such a command is written to a file in memory, which the
// shell reads. The file has no name, so no other user finds it, and the kernel frees it when the shell has closed it.

package jobs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxArgument is the longest argument that the kernel takes, in bytes: MAX_ARG_STRLEN without the null byte.
	maxArgument = 32*4096 - 1
	// scriptDescriptor is the number under which the shell inherits the file.
	scriptDescriptor = 3
	// runScript makes the shell read the file as it would read the text after -c: $0 is /bin/sh, there are no positional
	// parameters, and standard input is the job's own.
	runScript = ". /proc/self/fd/3"
	// closeScript is put before the command, so that no program of the job inherits the descriptor. The shell reads the file
	// through another descriptor, which it opened itself. It is on the command's first line, so line numbers stay the same.
	closeScript = "exec 3<&-; "
)

// openScript returns a file in memory that holds the command and that only the account and root may read.
func openScript(command []byte, who *account) (*os.File, error) {
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

func fillScript(file *os.File, command []byte, who *account) error {
	if err := file.Chmod(0o600); err != nil {
		return err
	}
	if err := file.Chown(int(who.uid), int(who.gid)); err != nil {
		return err
	}
	if _, err := file.WriteString(closeScript); err != nil {
		return err
	}
	_, err := file.Write(command)
	return err
}

package jobs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/process"
	"sandbar/guest-agent/internal/reaper"
)

// program is a checked request, ready to be started: its user, directory and program have been looked up in the
// machine.
type program struct {
	process.Program
	script  []byte // a command that is too long to be an argument, else nothing
	failure int    // exit code of a program that cannot be run, else 0
}

func resolve(request *Request) (*program, error) {
	found, failure, err := process.Find(request.argv(), request.User, request.Cwd, request.Env)
	if err != nil {
		return nil, err
	}
	return &program{Program: *found, script: request.script(), failure: failure}, nil
}

// stdio holds the files that become descriptors 0, 1 and 2 of a process. Descriptors 1 and 2 may share one file.
type stdio [3]*os.File

// openInput returns a file from which the job reads content, followed by end of file. It returns at once: a goroutine
// writes what does not fit into the pipe, and the rest is dropped if the job never reads it.
func openInput(content []byte) (*os.File, error) {
	if len(content) == 0 {
		return os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	}
	reader, writer, err := makeInputPipe()
	if err != nil {
		return nil, err
	}
	if len(content) <= pumpSize {
		_, err := writer.Write(content)
		return reader, errors.Join(err, writer.Close())
	}
	go func() {
		_, _ = writer.Write(content) // fails when nobody can read any more
		_ = writer.Close()
	}()
	return reader, nil
}

// makeInputPipe returns a pipe for the standard input of a job. Its write end is in non-blocking mode.
func makeInputPipe() (reader, writer *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	reader = os.NewFile(uintptr(ends[0]), "stdin")
	if err := unix.SetNonblock(ends[1], true); err != nil {
		return nil, nil, errors.Join(err, reader.Close(), unix.Close(ends[1]))
	}
	return reader, os.NewFile(uintptr(ends[1]), "stdin"), nil
}

func (s *stdio) close() {
	for _, file := range s {
		if file != nil {
			_ = file.Close() // fails only if the file is in s twice and closed already
		}
	}
}

// own makes the account the owner of the pipes, so that programs may open /dev/stdin, /dev/stdout and /dev/stderr.
func (s *stdio) own(who *process.Account) error {
	if who.UID == 0 {
		return nil
	}
	for _, file := range s {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeNamedPipe == 0 {
			continue
		}
		if err := file.Chown(int(who.UID), int(who.GID)); err != nil {
			return err
		}
	}
	return nil
}

// start runs the program in the control group and in its own session. It returns the pid and a channel for the exit
// status.
func (p *program) start(r *reaper.Reaper, files *stdio, group *os.File) (int, <-chan syscall.WaitStatus, error) {
	if err := files.own(&p.Account); err != nil {
		return 0, nil, err
	}
	descriptors := []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()}
	if p.script != nil {
		script, err := openScript(p.script, &p.Account)
		if err != nil {
			return 0, nil, err
		}
		defer script.Close()
		descriptors = append(descriptors, script.Fd()) // becomes scriptDescriptor
	}
	return p.Start(r, descriptors, group, syscall.SysProcAttr{Setsid: true})
}

func internal(step string, err error) error {
	return fault.New(fault.Internal, step+": "+err.Error())
}

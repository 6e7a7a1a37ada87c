// Package process starts the programs of jobs and terminals: as an account of the machine, with its environment and
// folder, in a control group of their own.
package process

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/reaper"
)

// Program is a program that is ready to be started.
type Program struct {
	Path    string
	Argv    []string
	Env     []string
	Cwd     string
	Account Account
}

// Find looks up the user, the directory and the program in the machine. An empty user means root, and an empty cwd the
// home of the user. If a shell could not run the program, failure is the shell's exit code, else 0. The error is a
// validation error if the user or the directory does not exist.
func Find(argv []string, user, cwd string, env map[string]string) (program *Program, failure int, err error) {
	who, err := FindAccount("", user)
	if err != nil {
		return nil, 0, err
	}
	if cwd, err = WorkingDirectory(&who, cwd); err != nil {
		return nil, 0, err
	}
	program = &Program{Argv: argv, Env: Environment(&who, env), Cwd: cwd, Account: who}
	program.Path, failure = FindProgram(argv[0], program.Env, cwd)
	return program, failure, nil
}

// FindLogin looks up the login shell of a user, as Find does. Argv has only its path.
func FindLogin(user, cwd string, env map[string]string) (*Program, error) {
	who, err := FindAccount("", user)
	if err != nil {
		return nil, err
	}
	if cwd, err = WorkingDirectory(&who, cwd); err != nil {
		return nil, err
	}
	return &Program{Path: who.Shell, Argv: []string{who.Shell}, Env: Environment(&who, env), Cwd: cwd, Account: who}, nil
}

// Start runs the program in the control group. descriptors become its descriptors from 0 on. The attributes say which
// session and terminal it gets. It returns the pid and a channel for the exit status. An error of starting the program
// itself is known to ExecFailure.
func (p *Program) Start(r *reaper.Reaper, descriptors []uintptr, group *os.File, attributes syscall.SysProcAttr) (int, <-chan syscall.WaitStatus, error) {
	attributes.UseCgroupFD, attributes.CgroupFD = true, int(group.Fd())
	if !p.Account.isPlainRoot() {
		attributes.Credential = &syscall.Credential{Uid: p.Account.UID, Gid: p.Account.GID, Groups: p.Account.Groups}
	}
	pid, status, err := r.Start(func() (int, error) {
		pid, err := syscall.ForkExec(p.Path, p.Argv, &syscall.ProcAttr{
			Dir:   p.Cwd,
			Env:   p.Env,
			Files: descriptors,
			Sys:   &attributes,
		})
		if err != nil {
			return 0, execError{err}
		}
		return pid, nil
	})
	runtime.KeepAlive(group)
	return pid, status, err
}

// execError marks an error of starting the program itself, as opposed to an error of the preparation.
type execError struct{ cause error }

func (e execError) Error() string { return "exec: " + e.cause.Error() }
func (e execError) Unwrap() error { return e.cause }

// ExecFailure returns the exit code and message that a shell would give if it could not start a program. ok is false if
// err has another cause.
func ExecFailure(err error) (exitCode int, text string, ok bool) {
	var failed execError
	if !errors.As(err, &failed) {
		return 0, "", false
	}
	switch failed.cause {
	case syscall.ENOENT, syscall.ENOTDIR:
		return ExitNotFound, FailureText(ExitNotFound), true
	case syscall.EACCES, syscall.EPERM, syscall.EISDIR, syscall.ELOOP:
		return ExitNotExecutable, FailureText(ExitNotExecutable), true
	case syscall.ENOEXEC:
		return ExitNotExecutable, "exec format error", true
	case syscall.E2BIG, syscall.ENAMETOOLONG:
		return ExitNotExecutable, "argument list too long", true
	}
	return 0, "", false
}

// FailureText returns the message of a shell for a program that FindProgram did not find.
func FailureText(exitCode int) string {
	if exitCode == ExitNotFound {
		return "not found"
	}
	return "permission denied"
}

// SignalName returns the name of a signal, such as SIGKILL.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(sig))
}

func invalid(detail string) error { return fault.New(fault.Validation, detail) }

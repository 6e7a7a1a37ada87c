package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment returns the environment variables that a login of the account would have. Variables of the request
// override them.
func Environment(who *Account, wanted map[string]string) []string {
	name := who.Name
	if name == "" {
		name = strconv.FormatUint(uint64(who.UID), 10)
	}
	defaults := [...][2]string{
		{"PATH", defaultPath},
		{"HOME", who.Home},
		{"USER", name},
		{"LOGNAME", name},
		{"SHELL", who.Shell},
		{"LANG", "C.UTF-8"},
	}
	variables := make([]string, 0, len(defaults)+len(wanted))
	for _, variable := range defaults {
		if _, overridden := wanted[variable[0]]; !overridden {
			variables = append(variables, variable[0]+"="+variable[1])
		}
	}
	for name, value := range wanted {
		variables = append(variables, name+"="+value)
	}
	return variables
}

// WorkingDirectory returns the directory in which a program starts: wanted if it is set, else the home of the account,
// else /.
func WorkingDirectory(who *Account, wanted string) (string, error) {
	if wanted != "" {
		if !isDirectory(wanted) {
			return "", invalid("cwd is not a directory: " + wanted)
		}
		return wanted, nil
	}
	if isDirectory(who.Home) {
		return who.Home, nil
	}
	return "/", nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// The exit codes with which a shell reports that it could not run a program.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// FindProgram returns the path of the program called name. If a shell could not run it, failure is the shell's exit
// code.
func FindProgram(name string, env []string, cwd string) (path string, failure int) {
	if strings.Contains(name, "/") {
		return name, 0 // no check is needed, because the kernel reports the error
	}
	failure = ExitNotFound
	for directory := range strings.SplitSeq(searchPath(env), ":") {
		candidate := filepath.Join(directory, name)
		if !filepath.IsAbs(candidate) {
			candidate = filepath.Join(cwd, candidate)
		}
		info, err := os.Stat(candidate)
		if name == "" || err != nil || info.IsDir() {
			continue
		}
		if info.Mode().Perm()&0o111 != 0 {
			return candidate, 0
		}
		failure = ExitNotExecutable
	}
	return "", failure
}

func searchPath(env []string) string {
	for _, variable := range env {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			return path
		}
	}
	return defaultPath
}

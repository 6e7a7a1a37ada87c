package terminals

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/reaper"
)

var (
	reapOnce  sync.Once
	theReaper *reaper.Reaper
)

// machine is a registry with what it needs, in this process.
type machine struct {
	*Registry
	t *testing.T
}

// newMachine returns a machine without terminals. Skips the test without a usable cgroup2 file system.
func newMachine(t *testing.T, config Config) *machine {
	t.Helper()
	reapOnce.Do(func() {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		theReaper = reaper.New()
	})
	config.CgroupDirectory, config.Reaper = makeCgroups(t), theReaper
	if config.Gate == nil {
		config.Gate = new(freeze.Gate)
	}
	if config.StartGate == nil {
		config.StartGate = new(freeze.Gate)
	}
	registry, err := NewRegistry(config)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{registry, t}
}

func makeCgroups(t *testing.T) string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		directory := filepath.Join(root, "sandbar-terminals-"+strconv.Itoa(os.Getpid())+"-"+strings.ReplaceAll(t.Name(), "/", "-"))
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			_ = os.WriteFile(filepath.Join(directory, "cgroup.kill"), []byte("1"), 0)
			eventually(t, "the control groups go away", func() bool {
				entries, _ := os.ReadDir(directory)
				for _, entry := range entries {
					if entry.IsDir() {
						_ = os.Remove(filepath.Join(directory, entry.Name()))
					}
				}
				err := os.Remove(directory)
				return err == nil || os.IsNotExist(err)
			})
		})
		return directory
	}
	t.Skip("no cgroup2 file system")
	return ""
}

// eventually waits up to 20 s until holds returns true, else it fails the test.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// idOf returns a UUID with this number.
func idOf(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

// call makes a guest call and decodes its answer.
func (m *machine) call(name string, params any, answer any) error {
	m.t.Helper()
	content, err := json.Marshal(params)
	if err != nil {
		m.t.Fatal(err)
	}
	got, err := m.Calls()[name](m.t.Context(), content)
	if err != nil {
		return err
	}
	if content, err = json.Marshal(got); err != nil {
		m.t.Fatal(err)
	}
	if answer != nil {
		if err := json.Unmarshal(content, answer); err != nil {
			m.t.Fatal(err)
		}
	}
	return nil
}

type fields map[string]any

// mustOpen opens a terminal. The fields override the defaults: 80 columns, 24 rows.
func (m *machine) mustOpen(number int, more fields) string {
	m.t.Helper()
	request := fields{"id": idOf(number), "cols": 80, "rows": 24}
	for name, value := range more {
		request[name] = value
	}
	if err := m.call("terminals.open", request, nil); err != nil {
		m.t.Fatal(err)
	}
	return idOf(number)
}

func (m *machine) sh(number int, script string) string {
	m.t.Helper()
	return m.mustOpen(number, fields{"command": []string{"/bin/sh", "-c", script}})
}

func (m *machine) mustList() []listed {
	m.t.Helper()
	var answer listAnswer
	if err := m.call("terminals.list", fields{}, &answer); err != nil {
		m.t.Fatal(err)
	}
	return answer.Terminals
}

func (m *machine) mustEnd(id string) {
	m.t.Helper()
	if err := m.call("terminals.end", fields{"id": id}, nil); err != nil {
		m.t.Fatal(err)
	}
}

// client is a connection to a terminal, as the host has it.
type client struct {
	t       *testing.T
	head    attachHead
	typing  *io.PipeWriter
	reading *io.PipeReader
	cut     context.CancelFunc
	taking  chan struct{} // receives before each write; closed: takes everything
	grown   chan struct{} // receives a value after output has arrived
	over    chan struct{} // closed when the stream has ended

	mu     sync.Mutex
	output []byte
	isOver bool
	result *result
	err    error
}

func (c *client) Read(p []byte) (int, error) { return c.reading.Read(p) }

func (c *client) Write(p []byte) (int, error) {
	select {
	case <-c.taking:
	case <-c.over:
		return 0, errors.New("the stream is over")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		return 0, errors.New("the stream is over")
	}
	c.output = append(c.output, p...)
	signal(c.grown)
	return len(p), nil
}

// attach connects to a terminal. A negative offset means none.
func (m *machine) attach(id string, offset int64) *client {
	m.t.Helper()
	c := m.attachUnread(id, offset)
	close(c.taking)
	return c
}

// attachUnread connects to a terminal and takes no output until something is sent to taking.
func (m *machine) attachUnread(id string, offset int64) *client {
	m.t.Helper()
	c, err := m.tryAttach(id, offset)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *machine) tryAttach(id string, offset int64) (*client, error) {
	m.t.Helper()
	params := fields{"id": id}
	if offset >= 0 {
		params["offset"] = offset
	}
	content, err := json.Marshal(params)
	if err != nil {
		m.t.Fatal(err)
	}
	c := &client{t: m.t, taking: make(chan struct{}), grown: make(chan struct{}, 1), over: make(chan struct{})}
	c.reading, c.typing = io.Pipe()
	ctx, cancel := context.WithCancel(m.t.Context())
	c.cut = cancel
	context.AfterFunc(ctx, func() { _ = c.reading.CloseWithError(ctx.Err()) })
	begun := make(chan struct{})
	go func() {
		got, err := m.Streams()["terminals.attach"](ctx, content, func(head any) (calls.Conn, error) {
			c.head = head.(attachHead)
			close(begun)
			return c, nil
		})
		if result, ok := got.(*result); ok && err == nil {
			c.result = result
		}
		c.err = err
		c.mu.Lock()
		c.isOver = true
		c.mu.Unlock()
		close(c.over)
		cancel()
	}()
	select {
	case <-begun:
		return c, nil
	case <-c.over:
		return c, c.err
	}
}

func (c *client) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.output)
}

func (c *client) enter(text string) {
	c.t.Helper()
	if _, err := c.typing.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) awaitText(wanted string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%q", wanted), func() bool { return strings.Contains(c.text(), wanted) })
}

// detach cuts the connection and waits until the terminal has noticed.
func (c *client) detach() {
	c.cut()
	<-c.over
}

// end waits for the end of the stream and returns its result, such as "exit 3" or "SIGHUP".
func (c *client) end() string {
	<-c.over
	switch {
	case c.err != nil:
		return "error: " + c.err.Error()
	case c.result.ExitCode != nil && c.result.Signal == nil:
		return fmt.Sprint("exit ", *c.result.ExitCode)
	case c.result.Signal != nil && c.result.ExitCode == nil:
		return *c.result.Signal
	default:
		return "no result"
	}
}

func sha256Of(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

func logDurations(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	t.Logf("%s: median %v, p90 %v, most %v", what, took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
}

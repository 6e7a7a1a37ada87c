// The pump of a terminal moves its output into the ring. It reads no further while that would overwrite bytes that a
// connection still needs. Then the programs that write have to wait.

package terminals

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize is how many bytes the kernel returns at most in one read of a pseudo-terminal.
	readSize = 4 << 10
	// maxLeft is how many bytes are read at most after the main process has ended. A pseudo-terminal holds less, so
	// these are all that were written before the end, even if a program in the background never stops writing.
	maxLeft = 64 << 10
	// hungUpRetry is the pause between reads while a program has hung up its terminal, which makes reads fail.
	hungUpRetry = 100 * time.Millisecond
)

// scratch holds read buffers. A pump borrows one only while it moves bytes, so that idle terminals need no memory for it.
var scratch = sync.Pool{New: func() any { return new([readSize]byte) }}

// pump reads the pseudo-terminal until the main process has ended, and then what was written before that.
func (t *terminal) pump(line *pty) {
	defer close(t.drained)
	var pace pace
	for {
		t.awaitRoom(&pace)
		n, err := t.transfer(line)
		pace.note(n, time.Now())
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.drain(line)
			return
		default: // a program has hung up the terminal; another may open it again
			select {
			case <-t.exited:
				t.drain(line)
				return
			case <-time.After(hungUpRetry):
			}
		}
	}
}

// transfer waits for output and moves what one read returns. It returns os.ErrDeadlineExceeded when the main process has
// ended.
func (t *terminal) transfer(line *pty) (n int, err error) {
	failure := line.raw.Read(func(fd uintptr) bool {
		n, err = t.readOnce(int(fd))
		return err != unix.EAGAIN
	})
	return n, errors.Join(failure, err)
}

// drain moves the output that the kernel still holds.
func (t *terminal) drain(line *pty) {
	for left := maxLeft; left > 0; {
		t.awaitRoom(new(pace))
		var n int
		var err error
		failure := line.raw.Control(func(fd uintptr) { n, err = t.readOnce(int(fd)) })
		if left -= n; n == 0 || failure != nil || err != nil {
			return
		}
	}
}

func (t *terminal) readOnce(fd int) (int, error) {
	space := scratch.Get().(*[readSize]byte)
	defer scratch.Put(space)
	for {
		n, err := unix.Read(fd, space[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		t.keep(space[:n])
		return n, nil
	}
}

// keep adds output and wakes the connections.
func (t *terminal) keep(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isReleased {
		return
	}
	t.output.append(data)
	t.wakeConnections()
}

// awaitRoom waits until the pump may read. A key press ends the pause that the pace demands, so that its echo is read at
// once.
func (t *terminal) awaitRoom(pace *pace) {
	for {
		var hasRoom bool
		hasRoom, pace.period = t.room()
		var pause time.Duration
		if !t.isTyped.Swap(false) {
			pause = pace.pause(time.Now())
		}
		if hasRoom && pause == 0 {
			return
		}
		var over <-chan time.Time
		if hasRoom {
			over = time.After(pause)
		}
		select {
		case <-t.prod:
		case <-over:
		}
	}
}

// room reports whether one more read would keep in the ring all output that a connection still needs, and returns the
// period for reads of small output.
func (t *terminal) room() (hasRoom bool, period time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.connections) == 0 || t.isReleased {
		return true, unreadPeriod
	}
	for c := range t.connections {
		if t.output.end+readSize-c.position > ringSize {
			return false, readPeriod
		}
	}
	return true, readPeriod
}

func (t *terminal) prodPump() { signal(t.prod) }

// signal wakes the goroutine that receives from the channel, which has room for one value.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

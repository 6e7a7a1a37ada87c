// The pump of a terminal moves its output into the ring. It reads no further while that would overwrite bytes that a
// connection still needs, and it reads slowly while nobody is connected. Then the programs that write have to wait.

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

	// While nobody is connected, a terminal reads at most unreadBurst bytes in each unreadPeriod, which is 4 MB/s.
	// Unlimited, a program that prints without end would keep a processor busy for output that nobody sees.
	unreadBurst  = 256 << 10
	unreadPeriod = 64 * time.Millisecond
)

// scratch holds read buffers. A pump borrows one only while it moves bytes, so that idle terminals need no memory for it.
var scratch = sync.Pool{New: func() any { return new([readSize]byte) }}

// pump reads the pseudo-terminal until the main process has ended, and then what was written before that.
func (t *terminal) pump(line *pty) {
	defer close(t.drained)
	var unread budget
	for {
		t.awaitRoom(&unread)
		n, err := t.transfer(line)
		unread.spent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.drain(line)
			return
		}
		if err == nil {
			continue
		}
		select { // a program has hung up the terminal; another may open it again
		case <-t.exited:
			return
		case <-time.After(hungUpRetry):
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
	var unlimited budget
	for left := maxLeft; left > 0; {
		t.awaitRoom(&unlimited)
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

// budget limits how fast output is read while nobody is connected.
type budget struct {
	begun time.Time // of the present period
	spent int       // bytes that were read in it
}

// left returns how long to wait before the next read: 0 if bytes are left in this period.
func (b *budget) left(now time.Time) time.Duration {
	if now.Sub(b.begun) >= unreadPeriod {
		b.begun, b.spent = now, 0
	}
	if b.spent < unreadBurst {
		return 0
	}
	return unreadPeriod - now.Sub(b.begun)
}

// awaitRoom waits until the pump may read.
func (t *terminal) awaitRoom(unread *budget) {
	for {
		hasRoom, isUnread := t.room()
		var pause time.Duration
		if isUnread {
			pause = unread.left(time.Now())
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

// room reports whether one more read would leave in the ring what every connection still needs, and whether nobody is
// connected.
func (t *terminal) room() (hasRoom, isUnread bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.connections {
		if t.output.end+readSize-c.position > ringSize {
			return false, false
		}
	}
	return true, len(t.connections) == 0 || t.isReleased
}

func (t *terminal) prodPump() { signal(t.prod) }

// signal wakes the goroutine that receives from the channel, which has room for one value.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

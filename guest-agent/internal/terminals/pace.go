package terminals

import "time"

const (
	// readPeriod is the time between two reads of small output while somebody is connected. The first piece is read at
	// once. Without the pause, a program that prints many small pieces would cause one message for each.
	readPeriod = 4 * time.Millisecond
	// unreadPeriod is the same while nobody is connected.
	unreadPeriod = 32 * time.Millisecond
	// maxBurst is how many bytes are read in one period at most: 16 MB/s, and 2 MB/s while nobody is connected.
	maxBurst = 64 << 10
	// fullRead is the size of a read after which the kernel probably has more output.
	fullRead = readSize / 2
)

// pace limits how often a pump reads. The zero value allows a read at once.
type pace struct {
	period time.Duration
	begun  time.Time // of the present period, which begins with a read
	spent  int       // bytes that were read in it
	isFull bool      // the last read returned much
}

// pause returns how long to wait before the next read.
func (p *pace) pause(now time.Time) time.Duration {
	if p.isFull && p.spent < maxBurst {
		return 0
	}
	return max(0, p.period-now.Sub(p.begun))
}

// note records a read of n bytes, which ended now.
func (p *pace) note(n int, now time.Time) {
	if now.Sub(p.begun) >= p.period {
		p.begun, p.spent = now, 0
	}
	p.spent += n
	p.isFull = n >= fullRead
}

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// writer is a Perl program that writes to a file until /dev/shm/stop exists. Each time /dev/shm/ask appears, it removes
// that file and prints the longest time between two writes so far, in microseconds, and the number of writes.
const writer = `
use strict; $| = 1;
sub now { my $t = pack('qq', 0, 0); syscall(228, 1, $t) == 0 or die; my ($s, $n) = unpack('qq', $t); $s * 1e6 + $n / 1e3 }
open(my $file, '>', '/root/written') or die; my ($longest, $last, $count) = (0, now(), 0);
while (!-e '/dev/shm/stop') {
  syswrite($file, 'x' x 4096) or die; my $time = now(); $count++;
  $longest = $time - $last if $time - $last > $longest; $last = $time;
  seek($file, 0, 0) if $count % 32768 == 0;
  if (-e '/dev/shm/ask') { unlink '/dev/shm/ask'; printf "%d %d\n", $longest, $count; $longest = 0; $last = now(); }
}`

func TestMachineStandsStillWhileItIsFrozen(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response := h.send(ctx, "PUT", "/jobs/writer", map[string]any{"argv": []string{"perl", "-e", writer}})
	longest := func() time.Duration {
		h.sh(fmt.Sprint("ask", time.Now().UnixNano()), "touch /dev/shm/ask; while test -e /dev/shm/ask; do sleep 0.01; done")
		frame, err := response.output()
		if err != nil {
			t.Fatal(err)
		}
		micros, _, _ := strings.Cut(string(frame.payload), " ")
		count, err := strconv.Atoi(micros)
		if err != nil {
			t.Fatalf("%q", frame.payload)
		}
		return time.Duration(count) * time.Microsecond
	}
	longest() // wait until the writer has begun
	h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 5000})
	time.Sleep(300 * time.Millisecond) // the length of the pause that the writer must measure
	h.expect(204, "POST", "/thaw", nil)
	if still := longest(); still < 250*time.Millisecond {
		t.Errorf("the writer went on: it waited %v", still)
	}
	for round := range 6 {
		h.sh(fmt.Sprint("idle", round), "sleep 0.3")
		idle := longest()
		begin := time.Now()
		h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 5000})
		frozen := time.Since(begin)
		h.expect(204, "POST", "/thaw", nil)
		thawed := time.Since(begin)
		pause := longest()
		t.Logf("round %d: frozen after %v, thawed after %v; the writer waited %v (%v without)", round, frozen, thawed, pause, idle)
	}
}

func TestMachineThatIsFrozenServesAndThawsByItself(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.send(ctx, "PUT", "/jobs/chatty", map[string]any{"command": "cat /dev/zero"}) // nobody reads the output, so it goes to the disk
	spilled := func() bool {
		return h.sh(fmt.Sprint("spilled", time.Now().UnixNano()), "ls -l /proc/1/fd | grep spill").status.StdoutBytes > 0
	}
	eventually(t, "output is on the disk", spilled)
	h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 2000})
	begin := time.Now()
	h.expect(409, "POST", "/freeze", map[string]any{"timeout_ms": 2000})
	h.expect(200, "GET", "/jobs", nil)
	h.expect(200, "GET", "/jobs/chatty", nil)
	h.expect(204, "POST", "/jobs/chatty/ack", map[string]int{"stdout": 5_000_000})
	h.expect(202, "POST", "/jobs/chatty/cancel", nil)
	if waited := time.Since(begin); waited > 1500*time.Millisecond {
		t.Errorf("a frozen machine answers after %v", waited)
	}
	h.check("echo thawed > /root/thawed; cat /root/thawed", "thawed") // waits for the end of the freeze
	h.expect(409, "POST", "/thaw", nil)
	eventually(t, "the job ends", func() bool { return h.status("chatty").State == "canceled" })
	h.expect(204, "DELETE", "/jobs/chatty", nil)

	h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 60000})
	h.expect(202, "POST", "/poweroff", nil)
	awaitEnd(t, m)
}

// Checks that the timer of every processor works. The machine has no other source of timer interrupts. On a busy host
// without KVM, Linux can fail to calibrate the timer ("APIC frequency too slow, disabling apic timer"). It then boots
// without a timer, and the machine freezes at the first wait that only a timer ends. So would every clone of it.
//
// The check reads how often each timer has interrupted its processor: several hundred times in a normal boot, and never
// without a working timer. Names would not tell. With several processors, sysfs calls a disabled timer "lapic" too, and
// the name of a working timer is "lapic" or, with KVM, "lapic-deadline".

package boot

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// errNoTimer is the reason to refuse the boot. The host then boots again.
var errNoTimer = errors.New("the timer of a processor does not work")

// checkTimers fails unless the timer of every processor has interrupted it at least once. interrupts is the path of
// /proc/interrupts, whose row LOC has one count for each processor.
func checkTimers(interrupts string) error {
	content, err := os.ReadFile(interrupts)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "LOC:" {
			return checkCounts(fields[1:])
		}
	}
	return errNoTimer
}

// checkCounts takes the words of the row: counts, then a description, which ends the check. A row without any count is
// an error.
func checkCounts(words []string) error {
	for i, word := range words {
		count, err := strconv.ParseUint(word, 10, 64)
		if err != nil && i > 0 {
			return nil
		}
		if count == 0 {
			return errNoTimer
		}
	}
	return nil
}

package boot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Rows of /proc/interrupts before and after the row LOC, as a machine with two processors shows them.
const (
	rowsBefore = "           CPU0       CPU1       \n" +
		" 25:          2          0   IO-APIC   4-edge      ttyS0\n" +
		"NMI:          0          0   Non-maskable interrupts\n"
	rowsAfter = "SPU:          0          0   Spurious interrupts\n"
)

func TestABootIsRefusedUnlessTheTimerOfEveryProcessorHasInterruptedIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "interrupts")
	for row, want := range map[string]error{
		"LOC:        393        409   Local timer interrupts\n": nil,
		"LOC:          1   Local timer interrupts\n":            nil,
		"LOC:          0   Local timer interrupts\n":            errNoTimer,
		"LOC:          0        409   Local timer interrupts\n": errNoTimer,
		"LOC:        393          0   Local timer interrupts\n": errNoTimer,
		"LOC:   Local timer interrupts\n":                       errNoTimer,
		"LOC:\n":                                                errNoTimer,
		"":                                                      errNoTimer,
	} {
		if err := os.WriteFile(path, []byte(rowsBefore+row+rowsAfter), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkTimers(path); err != want {
			t.Errorf("%q: %v, want %v", row, err, want)
		}
	}
	if err := checkTimers(path + ".missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

package frames

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"strings"
	"testing"
)

// duplexOf returns a handler that begins a two-way stream and runs use.
func duplexOf(use func(*Duplex) error) Handler {
	return func(c *Call) {
		d, err := c.BeginDuplex(200, []byte("{}"))
		if err == nil {
			err = use(d)
		}
		if err == nil {
			c.End([]byte("done"))
		}
	}
}

func creditOf(id uint32, bytes int) []byte {
	return frameOf(KindCredit, id, string(creditBytes(bytes)))
}

func TestATwoWayStreamEchoesItsInputUpToItsEnd(t *testing.T) {
	h := open(t, duplexOf(func(d *Duplex) error {
		_, err := io.Copy(d, d)
		return err
	}))
	h.send(requestOf(1, "POST /streams/echo", "{}"))
	h.expect(KindBegin, 1, status(200)+"{}")
	h.send(frameOf(KindInput, 1, "hel"))
	h.expect(KindStdout, 1, outputOf(0, "hel"))
	h.send(frameOf(KindInput, 1, "lo"))
	h.expect(KindStdout, 1, outputOf(3, "lo"))
	h.send(frameOf(KindInputEnd, 1, ""))
	h.expect(KindEnd, 1, "done")
	h.send(frameOf(KindInput, 1, "late"), frameOf(KindInputEnd, 1, "")) // the call is over: ignored
	h.send(requestOf(2, "POST /streams/echo", "{}"))
	h.expect(KindBegin, 2, status(200)+"{}")
}

func TestInputThatIsCutIsNotAnEnd(t *testing.T) {
	for name, cut := range map[string]func(*host){
		"by a cancel":                 func(h *host) { h.send(frameOf(KindCancel, 1, "")) },
		"by the end of the session":   func(h *host) { _ = h.Close() },
		"by a frame that is no input": func(h *host) { _, _ = h.Write(make([]byte, headerSize)) },
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error)
			h := open(t, duplexOf(func(d *Duplex) error {
				_, err := io.Copy(io.Discard, d)
				failed <- err
				return err
			}))
			h.send(requestOf(1, "POST /streams/read", "{}"))
			h.expect(KindBegin, 1, status(200)+"{}")
			h.send(frameOf(KindInput, 1, "half"))
			cut(h)
			if err := <-failed; !errors.Is(err, ErrOver) {
				t.Fatal(err)
			}
		})
	}
}

// A program may end while its host sends nothing, or while its host takes no output.
func TestTheEndOfAStreamEndsReadsAndWritesThatWait(t *testing.T) {
	returned := make(chan error, 2)
	h := open(t, duplexOf(func(d *Duplex) error {
		go func() {
			_, err := d.Read(make([]byte, 1))
			returned <- err
		}()
		hasSent := make(chan struct{})
		go func() {
			_, _ = d.Write(make([]byte, StartCredit/2))
			close(hasSent)
			_, err := d.Write(make([]byte, StartCredit))
			returned <- err
		}()
		<-hasSent
		return nil
	}))
	h.send(requestOf(1, "POST /streams/ends", "{}"))
	h.expect(KindBegin, 1, status(200)+"{}")
	for kind := KindStdout; kind != KindEnd; {
		received, _, _ := h.receive()
		kind = int(received)
		if kind != KindStdout && kind != KindEnd {
			t.Fatalf("a frame of kind %d", kind)
		}
	}
	for range 2 {
		if err := <-returned; !errors.Is(err, ErrOver) {
			t.Error(err)
		}
	}
}

// Another goroutine still writes while the handler returns.
func TestNoFrameFollowsTheEndOfAStream(t *testing.T) {
	h := open(t, duplexOf(func(d *Duplex) error {
		hasBegun := make(chan struct{})
		go func() {
			_, err := d.Write([]byte("x"))
			for close(hasBegun); err == nil; {
				_, err = d.Write([]byte("y"))
			}
		}()
		<-hasBegun
		return nil
	}))
	for id := uint32(1); id <= 500; id++ {
		h.send(requestOf(id, "POST /streams/ends", "{}"))
		h.expect(KindBegin, id, status(200)+"{}")
		for kind := byte(KindStdout); kind != KindEnd; {
			var of uint32
			if kind, of, _ = h.receive(); of != id || (kind != KindStdout && kind != KindEnd) {
				t.Fatalf("a frame of kind %d of stream %d during stream %d", kind, of, id)
			}
		}
	}
}

func TestInputThatBreaksTheProtocolEndsTheSession(t *testing.T) {
	full := frameOf(KindInput, 1, strings.Repeat("x", MaxInput))
	for name, frames := range map[string][]byte{
		"after its end":     append(frameOf(KindInputEnd, 1, ""), frameOf(KindInput, 1, "x")...),
		"a second end":      append(frameOf(KindInputEnd, 1, ""), frameOf(KindInputEnd, 1, "")...),
		"more than allowed": append(bytes.Repeat(full, StartInput/MaxInput), frameOf(KindInput, 1, "x")...),
		"an empty frame":    frameOf(KindInput, 1, ""),
		"of no call":        frameOf(KindInput, 9, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, duplexOf(func(d *Duplex) error {
				<-d.call.Context().Done()
				return ErrOver
			}))
			h.send(requestOf(1, "POST /streams/wait", "{}"))
			h.expect(KindBegin, 1, status(200)+"{}")
			go func() { _, _ = h.Write(frames) }()
			if kind, _, _ := h.receive(); kind != 0 && kind != KindBroken {
				t.Fatalf("a frame of kind %d", kind)
			}
		})
	}
	t.Run("for a call without a stream", func(t *testing.T) {
		h := open(t, func(c *Call) { <-c.Context().Done() })
		h.send(requestOf(1, "GET /", ""))
		_, _ = h.Write(frameOf(KindInput, 1, "x"))
		if kind, _, _ := h.receive(); kind != 0 && kind != KindBroken {
			t.Fatalf("a frame of kind %d", kind)
		}
	})
}

// The host sends 4 MiB in frames of random sizes, as much as its credit allows, and gets the same bytes back.
func TestCreditCarriesAnyAmountInBothDirections(t *testing.T) {
	content := make([]byte, 4<<20)
	_, _ = rand.New(rand.NewSource(1)).Read(content)
	h := open(t, duplexOf(func(d *Duplex) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{d}, struct{ io.Reader }{d}, make([]byte, 100_000))
		return err
	}))
	h.send(requestOf(1, "POST /streams/echo", "{}"))
	h.expect(KindBegin, 1, status(200)+"{}")
	credit := make(chan int, 1000)
	credit <- StartInput
	grants := make(chan int, 1000)
	go func() {
		sizes := rand.New(rand.NewSource(2))
		allowed := 0
		for left := content; len(left) > 0; {
			for allowed == 0 {
				allowed += <-credit
			}
			size := min(len(left), 1+sizes.Intn(MaxInput), allowed)
			h.send(frameOf(KindInput, 1, string(left[:size])))
			left = left[size:]
			allowed -= size
			for len(grants) > 0 {
				h.send(creditOf(1, <-grants))
			}
		}
		h.send(frameOf(KindInputEnd, 1, ""))
		for bytes := range grants {
			h.send(creditOf(1, bytes))
		}
	}()
	var received []byte
	for {
		kind, _, payload := h.receive()
		if kind == KindInputCredit {
			credit <- int(binary.BigEndian.Uint32([]byte(payload)))
			continue
		}
		if kind == KindEnd {
			break
		}
		if kind != KindStdout || binary.BigEndian.Uint64([]byte(payload)) != uint64(len(received)) {
			t.Fatalf("a frame of kind %d after %d bytes", kind, len(received))
		}
		received = append(received, payload[offsetSize:]...)
		grants <- len(payload)
	}
	close(grants)
	if !bytes.Equal(received, content) {
		t.Fatalf("%d other bytes", len(received))
	}
}

package ports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

func listen(t *testing.T, network, address string) (net.Listener, uint16) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestListNamesTheProcessOfEachOpenPort(t *testing.T) {
	_, v4 := listen(t, "tcp4", "127.0.0.1:0")
	_, v6 := listen(t, "tcp6", "[::1]:0")
	answer, err := list(t.Context(), []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	content, _ := json.Marshal(answer)
	var got struct{ Ports []openPort }
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	comm, _ := os.ReadFile("/proc/self/comm")
	for _, port := range []uint16{v4, v6} {
		found := false
		for _, entry := range got.Ports {
			if entry.Port == port {
				found = entry.Process != nil && *entry.Process == strings.TrimSpace(string(comm)) && entry.Protocol == "tcp"
			}
		}
		if !found {
			t.Errorf("%s does not name the process of port %d", content, port)
		}
	}
}

func TestTableEndsAtTheFirstSocketThatDoesNotListen(t *testing.T) {
	line := "   %d: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0000000000000000 100 0 0 10 0\n"
	table := "  sl  local_address\n" +
		fmt.Sprintf(line, 0, "0100007F:1F90", "0A", 7) +
		fmt.Sprintf(line, 1, "00000000000000000000000001000000:0050", "0A", 8) +
		fmt.Sprintf(line, 2, "0100007F:0051", "01", 9) +
		fmt.Sprintf(line, 3, "0100007F:0052", "0A", 10)
	got := parseTable(t.Context(), strings.NewReader(table), nil)
	if len(got) != 2 || got[0].address.String() != "127.0.0.1:8080" || got[0].inode != 7 || got[1].address.String() != "[::1]:80" {
		t.Errorf("got %v", got)
	}
}

func TestTableWithGarbageIsIgnored(t *testing.T) {
	for _, table := range []string{"", "x", "x\n\n", "x\n0: zz:zz 0 0A 0 0 0 0 0 0\n", "x\n0: 01:50 0 0A 0 0 0 0 0 7\n"} {
		if got := parseTable(t.Context(), strings.NewReader(table), nil); len(got) != 0 {
			t.Errorf("%q gives %v", table, got)
		}
	}
}

func TestNamesOfProcessesAreMadePrintable(t *testing.T) {
	if got := printable("a\x1b[31m\xff" + strings.Repeat("x", 200)); strings.ContainsAny(got, "\x1b\xff") || len(got) != maxName {
		t.Errorf("got %q", got)
	}
}

// hostSide is the host's end of a stream in a test.
type hostSide struct {
	*io.PipeWriter // bytes to the guest
	*io.PipeReader // bytes from the guest
	end            chan error
	cut            context.CancelFunc
}

type guestSide struct {
	io.Reader
	io.Writer
}

func openStream(t *testing.T, port uint16) hostSide {
	t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	t.Cleanup(cut)
	toGuest, fromHost := io.Pipe()
	fromGuest, toHost := io.Pipe()
	side := hostSide{fromHost, fromGuest, make(chan error, 1), cut}
	opened := make(chan struct{})
	go func() {
		_, err := connect(ctx, []byte(`{"port":`+strconv.Itoa(int(port))+`}`), func(any) (calls.Conn, error) {
			close(opened)
			return guestSide{toGuest, toHost}, nil
		})
		_ = toHost.Close()
		side.end <- err
	}()
	select {
	case <-opened:
	case err := <-side.end:
		t.Fatal(err)
	}
	return side
}

func TestConnectCarriesBothDirectionsAndEachEnd(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"} {
		l, port := listen(t, "tcp", address)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			content, _ := io.ReadAll(conn) // returns when the host has ended its direction
			_, _ = conn.Write([]byte(strings.ToUpper(string(content))))
			_ = conn.Close()
		}()
		side := openStream(t, port)
		_, _ = side.Write([]byte("hello"))
		_ = side.PipeWriter.Close()
		content, err := io.ReadAll(side.PipeReader)
		if err != nil || string(content) != "HELLO" {
			t.Errorf("%s: got %q, %v", address, content, err)
		}
		if err := <-side.end; err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestConnectEndsWhenTheProgramClosesItsConnection(t *testing.T) {
	l, port := listen(t, "tcp", "127.0.0.1:0")
	go func() {
		conn, _ := l.Accept()
		_, _ = conn.Write([]byte("bye"))
		_ = conn.Close()
	}()
	side := openStream(t, port)
	content, _ := io.ReadAll(side.PipeReader)
	if err := <-side.end; err != nil || string(content) != "bye" {
		t.Errorf("got %q, %v", content, err)
	}
}

func TestCutStreamResetsTheConnection(t *testing.T) {
	l, port := listen(t, "tcp", "127.0.0.1:0")
	ended := make(chan error, 1)
	go func() {
		conn, _ := l.Accept()
		_, err := io.ReadAll(conn)
		ended <- err
	}()
	side := openStream(t, port)
	_, _ = side.Write([]byte("half"))
	side.cut()
	if err := <-ended; err == nil {
		t.Error("the program takes the cut for the end of the data")
	}
	<-side.end
}

func TestClosedPortIsRefusedWithTheOpenPorts(t *testing.T) {
	_, open := listen(t, "tcp", "127.0.0.1:0")
	l, closed := listen(t, "tcp", "127.0.0.1:0")
	_ = l.Close()
	_, err := connect(t.Context(), []byte(`{"port":`+strconv.Itoa(int(closed))+`}`), nil)
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Code != fault.PortNotOpen || len(refused.Detail) > 512 {
		t.Fatal(err)
	}
	if !strings.Contains(refused.Detail, strconv.Itoa(int(open))) && !strings.Contains(refused.Detail, "more") {
		t.Error(refused.Detail)
	}
}

func TestParametersAreChecked(t *testing.T) {
	for _, params := range []string{``, `[]`, `{}`, `{"port":0}`, `{"port":65536}`, `{"port":"80"}`} {
		_, err := connect(t.Context(), []byte(params), nil)
		var refused *fault.Error
		if !errors.As(err, &refused) || refused.Code != fault.Validation {
			t.Errorf("%s: %v", params, err)
		}
	}
}

func TestSearchForProcessesEndsAtItsBound(t *testing.T) {
	search := search{wanted: map[string]uint64{"socket:[1]": 1}, left: 1, deadline: time.Now().Add(time.Hour)}
	search.lookAt("/proc/self")
	if !search.isOver() {
		t.Error("the search goes on past its bound")
	}
}

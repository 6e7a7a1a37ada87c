// Reads which TCP ports of the machine are open from the kernel's tables of sockets.

package ports

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

const (
	// maxListeners bounds the sockets that are read. More than this many ports are not listed.
	maxListeners = 1024
	// stateListen is TCP_LISTEN of the kernel, as the table shows it.
	stateListen = "0A"
)

// listener is a TCP socket that accepts connections.
type listener struct {
	address netip.AddrPort
	inode   uint64
}

// readListeners returns the listening sockets of the agent's network namespace, IPv4 first.
func readListeners(ctx context.Context) []listener {
	var all []listener
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.Open(path)
		if err != nil {
			continue // a kernel without IPv6 has no tcp6
		}
		all = parseTable(ctx, table, all)
		_ = table.Close()
	}
	return all
}

// parseTable appends the listening sockets of a table. The kernel writes them before all other sockets, so reading stops
// at the first socket in another state: a machine may have very many connections.
func parseTable(ctx context.Context, table io.Reader, all []listener) []listener {
	lines := bufio.NewScanner(table)
	lines.Scan() // the names of the columns
	for lines.Scan() && len(all) < maxListeners && ctx.Err() == nil {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != stateListen {
			break
		}
		address, ok := parseAddress(fields[1])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if ok && err == nil {
			all = append(all, listener{address, inode})
		}
	}
	return all
}

// parseAddress reads an address such as 0100007F:1F90. Each group of 4 bytes is a number in the byte order of the
// processor; the port is in ordinary order.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	raw, errHost := hex.DecodeString(host)
	if err != nil || errHost != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for group := raw; len(group) > 0; group = group[4:] {
		binary.NativeEndian.PutUint32(group, binary.BigEndian.Uint32(group))
	}
	address, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(address, uint16(number)), ok
}

package identity

import (
	"encoding/binary"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mixEntropy adds random bytes to the kernel's pool, credits them as entropy, and reseeds the kernel's generator at
// once.
func mixEntropy(entropy []byte) error {
	fd, err := unix.Open("/dev/urandom", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	pool := make([]byte, 8, 8+len(entropy)) // struct rand_pool_info: bits, bytes, content
	binary.NativeEndian.PutUint32(pool, uint32(len(entropy)*8))
	binary.NativeEndian.PutUint32(pool[4:], uint32(len(entropy)))
	pool = append(pool, entropy...)
	if err := ioctl(fd, unix.RNDADDENTROPY, unsafe.Pointer(&pool[0])); err != nil {
		return os.NewSyscallError("RNDADDENTROPY", err)
	}
	return os.NewSyscallError("RNDRESEEDCRNG", ioctl(fd, unix.RNDRESEEDCRNG, nil))
}

func ioctl(fd int, request uint, argument unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument))
	runtime.KeepAlive(argument)
	if errno != 0 {
		return errno
	}
	return nil
}

func setClock(now time.Time) error {
	spec := unix.NsecToTimespec(now.UnixNano())
	return os.NewSyscallError("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &spec))
}

func setHostname(name string) error {
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(name)))
}

// Grows the root file system to the size of its disk, which may be larger than the image. An ioctl makes the kernel
// grow a mounted ext4, so no program of the image is needed.

package identity

import (
	"encoding/binary"
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ext4IocResizeFs is EXT4_IOC_RESIZE_FS: _IOW('f', 16, __u64).
const ext4IocResizeFs = 0x40086610

// Offset, size and field offsets of an ext4 superblock, in bytes (Documentation/filesystems/ext4 of the kernel).
const (
	superblockOffset = 1024
	superblockSize   = 1024
	fieldBlocksLow   = 0x04
	fieldLogSize     = 0x18
	fieldPerGroup    = 0x20
	fieldMagic       = 0x38
	fieldIncompat    = 0x60
	fieldBlocksHigh  = 0x150
	ext4Magic        = 0xEF53
	incompat64Bit    = 0x80
)

// diskPatience is how long to wait for the new size of an enlarged disk. The driver learns the size by an interrupt,
// which may come after the identity request.
const diskPatience = 5 * time.Second

var (
	errNotExt4   = errors.New("the root device has no ext4")
	errSmallDisk = errors.New("the root device is smaller than it should be")
)

// geometry is the size of a file system, in its own blocks.
type geometry struct {
	blockSize uint64 // in bytes
	blocks    uint64
	perGroup  uint64
}

// growRoot waits until the device has at least leastBytes. Then it grows the root file system to the end of the device,
// if that adds at least one block group. It returns the size of the device in bytes.
func growRoot(device string, leastBytes uint64) (size uint64, err error) {
	file, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	superblock := make([]byte, superblockSize)
	if _, err := file.ReadAt(superblock, superblockOffset); err != nil {
		return 0, err
	}
	now, err := parseSuperblock(superblock)
	if err != nil {
		return 0, err
	}
	size, err = waitForSize(file, leastBytes)
	if err != nil {
		return 0, err
	}
	blocks := size / now.blockSize
	if blocks < now.blocks+now.perGroup {
		return size, nil
	}
	root, err := os.Open("/")
	if err != nil {
		return 0, err
	}
	defer root.Close()
	return size, os.NewSyscallError("EXT4_IOC_RESIZE_FS", ioctl(int(root.Fd()), ext4IocResizeFs, unsafe.Pointer(&blocks)))
}

// waitForSize waits until the device has at least leastBytes and returns its size in bytes.
func waitForSize(device *os.File, leastBytes uint64) (size uint64, err error) {
	for deadline := time.Now().Add(diskPatience); ; time.Sleep(time.Millisecond) {
		if err := ioctl(int(device.Fd()), unix.BLKGETSIZE64, unsafe.Pointer(&size)); err != nil {
			return 0, os.NewSyscallError("BLKGETSIZE64", err)
		}
		if size >= leastBytes {
			return size, nil
		}
		if time.Now().After(deadline) {
			return 0, errSmallDisk
		}
	}
}

func parseSuperblock(superblock []byte) (geometry, error) {
	if len(superblock) < superblockSize || binary.LittleEndian.Uint16(superblock[fieldMagic:]) != ext4Magic {
		return geometry{}, errNotExt4
	}
	field := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(superblock[at:])) }
	logSize := field(fieldLogSize)
	found := geometry{blocks: field(fieldBlocksLow), perGroup: field(fieldPerGroup)}
	if field(fieldIncompat)&incompat64Bit != 0 {
		found.blocks |= field(fieldBlocksHigh) << 32
	}
	if logSize > 6 || found.blocks == 0 || found.perGroup == 0 {
		return geometry{}, errNotExt4
	}
	found.blockSize = 1024 << logSize
	return found, nil
}

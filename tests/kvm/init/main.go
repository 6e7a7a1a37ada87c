// This is the first process of the VM in which the KVM test runs ("the host"). It loads the kernel modules for the
// disks, mounts the disks, and replaces itself with the shell script host/start.sh. The script is on the data disk and
// not on the root disk, so that the root disk has only packages and is rarely rebuilt.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	rootDisk   = "/dev/vda"
	dataDisk   = "/dev/vdb"
	newRoot    = "/root-fs"
	dataFolder = "/data"
	shell      = "/bin/sh"
	script     = dataFolder + "/checkout/tests/kvm/host/start.sh"
	// How long to wait for a disk. It appears within milliseconds after its driver is loaded.
	diskPatience = 10 * time.Second
)

func main() {
	if err := run(); err != nil {
		fmt.Println("kvm-test-init:", err)
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	}
}

func run() error {
	if err := syscall.Mount("devtmpfs", "/dev", "devtmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	list, err := os.ReadFile("/modules.list")
	if err != nil {
		return err
	}
	for _, file := range strings.Fields(string(list)) {
		if err := load(file); err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	if err := mountDisk(rootDisk, newRoot); err != nil {
		return err
	}
	if err := os.MkdirAll(newRoot+dataFolder, 0o755); err != nil {
		return err
	}
	if err := mountDisk(dataDisk, newRoot+dataFolder); err != nil {
		return err
	}
	return enterRoot()
}

func load(file string) error {
	module, err := os.Open(file)
	if err != nil {
		return err
	}
	defer module.Close()
	_, _, code := syscall.Syscall(sysFinitModule, module.Fd(), emptyText(), 0)
	if code != 0 && code != syscall.EEXIST {
		return code
	}
	return nil
}

func mountDisk(disk, folder string) error {
	for until := time.Now().Add(diskPatience); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Mount(disk, folder, "ext4", 0, "")
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("mount %s: %w", disk, err)
		}
	}
}

func enterRoot() error {
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := syscall.Mount("/dev", "dev", "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move /dev: %w", err)
	}
	if err := syscall.Mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	path := "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	environment := []string{path, "HOME=/root", "LC_ALL=C.UTF-8"}
	return syscall.Exec(shell, []string{shell, script}, environment)
}

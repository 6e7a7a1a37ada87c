# Runs as the first process of the host of the KVM test. It mounts what an init system would mount, runs the test, and
# powers the host off in any case.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
ln -s /proc/self/fd /dev/fd
# Loading the module creates /dev/net/tun.
modprobe tun
hostname kvm-test-host
ip link set lo up
# The addresses of QEMU's user networking.
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
rm -f /etc/resolv.conf
echo 'nameserver 10.0.2.3' > /etc/resolv.conf
# The set-up of the service checks that Go is installed. All images are built already, so Go never has to compile.
mkdir -p /data/go/pkg/tool
ln -s /data/go /usr/local/go
cd /data/checkout
# tini reaps orphaned processes, such as VMs whose host agent has ended.
tini -s -g -- node_modules/node/bin/node --disable-warning=ExperimentalWarning tests/kvm/inside/main.ts
echo "kvm-test-host: the test ended with $?"
sync
echo o > /proc/sysrq-trigger
# The kernel panics when its first process ends, so wait here until the power is off.
while :; do :; done

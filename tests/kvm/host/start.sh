# The life of the test's host, as its first process: what an init system would mount, then the test. Switched off at
# the end whatever happens.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
ln -s /proc/self/fd /dev/fd
# Its device node comes with the module.
modprobe tun
hostname kvm-test-host
ip link set lo up
# A Go to be found: with every image built, it compiles nothing.
mkdir -p /data/go/pkg/tool
ln -s /data/go /usr/local/go
cd /data/checkout
# tini takes in the processes whose parents end, as the service's VMs do when it is restarted.
tini -s -g -- node_modules/node/bin/node --disable-warning=ExperimentalWarning tests/kvm/inside/main.ts
echo "kvm-test-host: the test ended with $?"
sync
echo o > /proc/sysrq-trigger
# The power goes off a moment later, after the disks; a first process that ends before that is a panic.
while :; do :; done

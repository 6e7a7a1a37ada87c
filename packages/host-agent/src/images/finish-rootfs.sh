#!/bin/sh
# The last hook of mmdebstrap: makes the chroot $1 into something that many machines may start from, and writes it to
# descriptor 3 as an ext4 file system. Runs as root of the build's own namespace; SANDBAR_DISK_UUID comes from it.
set -eu
root=$1
export PATH="$PATH:/usr/sbin:/sbin"

if [ -e "$root/.sandbar-build/customize.sh" ]; then
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  chroot "$root" /bin/sh /.sandbar-build/customize.sh
fi
rm -rf "$root/.sandbar-build"

# What the host put in for the build, and what only a build leaves behind.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/0000*
find "$root/var/lib/apt/lists" -type f -delete
rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb
rm -rf "$root"/var/cache/debconf/*-old "$root"/var/cache/ldconfig/aux-cache "$root"/var/lib/dpkg/*-old
rm -rf "$root"/run/* "$root"/var/tmp/*
find "$root/var/log" -type f -delete

# Each machine has its own: the guest agent writes these when it knows who it is.
rm -f "$root"/etc/ssh/ssh_host_*
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"
rm -f "$root/etc/resolv.conf"
: > "$root/etc/resolv.conf"
echo sandbar > "$root/etc/hostname"

# The options of mmdebstrap would otherwise stay behind under a name that means nothing to the image's user.
if [ -e "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" ]; then
  grep -v force-unsafe-io "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" > "$root/etc/dpkg/dpkg.cfg.d/no-documentation"
  rm "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
fi
find "$root/usr/share/doc" -depth ! -name copyright ! -type d -delete 2>/dev/null || true
find "$root/usr/share/doc" -depth -type d -empty -delete 2>/dev/null || true
rm -rf "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/lintian "$root"/usr/share/groff
find "$root/usr/share/locale" -mindepth 1 -maxdepth 1 ! -name locale.alias -exec rm -rf {} + 2>/dev/null || true

# File system features, named one by one so that the host's mke2fs.conf and version have no say:
# - resize_inode with room for descriptors up to 1 TiB, so that a mounted disk can grow that far;
# - uninit_bg: unused groups are never read, written or checked. The inode tables of a new sparse file are known to be
#   zero, so no thread of the kernel writes them later;
# - no metadata_csum: it costs a checksum for every metadata block written; the journal already orders them;
# - no 64bit, orphan_file, metadata_csum_seed: of no use below 16 TiB, or unknown to the mke2fs of older hosts;
# - a journal of 16 MiB: it is written round and round, so each machine's overlay ends up with a copy of it.
features=none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg
features=$features,sparse_super,large_file,huge_file,uninit_bg,dir_nlink,extra_isize
blocks_of_1_tib=268435456

# mmdebstrap still needs its own files when this script is done (without them its clean-up would work on the package
# lists of the host), so they are only out of sight: those in /tmp are behind an empty one.
mv "$root/etc/apt/apt.conf.d/00mmdebstrap" "$root/tmp/00mmdebstrap"

# /proc, /sys and /dev of the build are mounted inside; a plain bind mount shows what is underneath.
export root features blocks_of_1_tib
unshare --mount --propagation private sh -eu -c '
  view=$root/mnt
  mount --bind "$root" "$view"
  mount -t tmpfs -o mode=1777 tmpfs "$view/tmp"
  MKE2FS_CONFIG=/dev/null E2FSPROGS_FAKE_TIME=1754697600 mke2fs -q -F \
    -d "$view" -L sandbar-root -U "$SANDBAR_DISK_UUID" \
    -b 4096 -I 256 -i 16384 -m 0 -J size=16 -O "$features" \
    -E "hash_seed=$SANDBAR_DISK_UUID,resize=$blocks_of_1_tib,root_owner=0:0,lazy_itable_init=0,lazy_journal_init=1" \
    /proc/self/fd/3
'
mv "$root/tmp/00mmdebstrap" "$root/etc/apt/apt.conf.d/00mmdebstrap"

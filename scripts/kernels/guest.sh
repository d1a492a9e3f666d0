#!/bin/sh
# The first process of the guest: runs each file of /levee/checks, says how it ended in a line that begins with "@", with
# what it printed if that was not well, and turns the machine off.
export PATH=/levee/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp
# There is memory to spare: collecting garbage took a sixth of what computes most.
export GOGC=off GOMEMLIMIT=1GiB
mkdir -p /proc /sys /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# The stories give their commands names by links, which one file system has: copies would be translated by qemu, each anew.
mkdir -p -m 1777 /tmp
for dir in /run /dev/shm; do
	mkdir -p $dir
	mount -t tmpfs -o mode=1777 tmpfs $dir
done
mkdir -p /dev/pts /root /etc
mount -t devpts devpts /dev/pts
ln -sf /proc/self/fd /dev/fd
echo 'root:x:0:0::/root:/bin/sh
www-data:x:33:33::/:/bin/sh
_apt:x:42:65534::/:/bin/sh
nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
echo 'root:x:0:
daemon:x:1:
nogroup:x:65534:' >/etc/group
echo '127.0.0.1 localhost' >/etc/hosts
ip link set lo up
# say EVENT NAME: a line for the host, with the seconds since boot.
say() { echo "@ $1 $(cut -d' ' -f1 /proc/uptime) $2"; }
echo
say linux "$(uname -r)"
cd /levee
for script in checks/*; do
	name=$(sed -n "1s/^# //p" "$script")
	rm -f /tmp/tests
	ended=0
	timeout "$(cat limit)" sh -eu -c '. /levee/prelude; . "$1"' sh "/levee/$script" >/tmp/said 2>&1 </dev/null || ended=$?
	if [ $ended = 0 ]; then
		say pass "$name"
		[ ! -e verbose ] || cat /tmp/said
	else
		say fail "$name"
		tail -c 100000 /tmp/said
		# Of tests that hang it is told here how far they came.
		[ $ended != 124 ] || tail -c 10000 /tmp/tests
	fi
done
say done .
echo o >/proc/sysrq-trigger
sleep 60

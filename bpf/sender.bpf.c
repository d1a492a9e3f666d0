// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Who sends a packet that leaves: the user and group of its socket, and the unit and container in
// whose cgroup the socket was made. The kernel tells the uid and the number of the cgroup. The rest
// is read from structures of the kernel. User space has looked up their layout.
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "sip.h"

#define NO_ID 0xffffffff // (uid_t)-1
#define NO_NAME 255      // neither so nor not so, package field
#define NAMED 250        // names of a kind
#define FORMS 4	         // names that the cgroup of a container may have
#define LEVELS 32        // of cgroups
#define NAME 256         // bytes of the name of a cgroup, and a zero
#define KNOWN 4096       // sockets and cgroups of which something is kept
#define SOCK_STREAM 1
#define TCP 6
#define TIME_WAIT 6
#define NEW_SYN_RECV 12

// Where members lie, in bytes.
struct sender_layout {
	__u32 skb_sk;	      // struct sk_buff
	__u32 sock_state;     // struct sock
	__u32 sock_kernel;    // the byte of sk_kern_sock,
	__u32 sock_kernel_is; // and its bit
	__u32 sock_type;
	__u32 sock_protocol;
	__u32 tcp_mptcp; // the byte of is_mptcp in struct tcp_sock, and its bit,
	__u32 tcp_mptcp_is; // 0 where the kernel has no MPTCP
	__u32 tcp_subflow;  // icsk_ulp_data of struct inet_connection_sock
	__u32 subflow_of;   // struct mptcp_subflow_context
	__u32 sock_cgroup;
	__u32 sock_socket;
	__u32 request_listener; // struct request_sock, which begins with struct sock_common
	__u32 socket_file;	// struct socket
	__u32 file_cred;	// struct file
	__u32 cred_gid;		// struct cred
	__u32 cgroup_node;	// struct cgroup
	__u32 node_name;	// struct kernfs_node
	__u32 node_parent;
	// The network namespaces of a socket and of a device; 0 where the kernel has one alone.
	__u8 sock_net; // struct sock_common
	__u8 skb_dev;
	__u16 device_net; // struct net_device
};

// What the policy names, as it is now. A name that nobody has is NO_ID, or 0.
struct sender_names {
	__u64 key[2]; // of digests
	__u32 users, groups, services, containers;
	__u32 user[NAMED], group[NAMED];
	__u64 service[NAMED];
	__u64 container[NAMED * FORMS];
};

// What is known of a socket or of a cgroup. Two CPUs may write one at once, and nobody waits: a
// reader takes it only if both words are of one writer (Hyatt and Mann, A lockless transposition
// table, 2002).
struct sender_known {
	__u64 check, value;
};

struct sender_memory {
	struct sender_layout layout;
	__u32 turn, unused; // whose lowest bit says which names are in force
	struct sender_names names[2];
	struct sender_known cgroups[KNOWN];
	struct sender_known sockets[KNOWN];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sender_memory);
} senders SEC(".maps");

struct sender_name {
	__u64 before; // always 0: names may be shorter than the load of a compare
	__u64 name[NAME / 8 + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sender_name);
} sender_work SEC(".maps");

static __always_inline struct sender_memory *memory(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&senders, &zero);
}

static __always_inline struct sender_name *work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sender_work, &zero);
}

static __always_inline __u64 word_at(__u64 at)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)at);
	return v;
}

static __always_inline __u8 byte_at(__u64 at)
{
	__u8 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)at);
	return v;
}

static __always_inline __u64 mix(__u64 key, __u64 value, __u32 turn)
{
	return (key ^ value * 0x9e3779b97f4a7c15) + (turn + 1) * 0xc2b2ae3d27d4eb4f;
}

static __always_inline bool recall(const struct sender_known *k, __u64 key, __u32 turn, __u64 *v)
{
	__u64 check = k->check, value = k->value;

	*v = value;
	return key && check == mix(key, value, turn);
}

static __always_inline void keep(struct sender_known *k, __u64 key, __u32 turn, __u64 value)
{
	k->check = mix(key, value, turn);
	k->value = value;
}

// whole is the socket of a process whose part a socket of the kernel's is: MPTCP has one for each
// subflow, and one that listens. 0 of all others.
static __always_inline __u64 whole(const struct sender_memory *m, __u64 sk)
{
	const struct sender_layout *l = &m->layout;

	if (byte_at(sk + l->sock_type) != SOCK_STREAM || byte_at(sk + l->sock_protocol) != TCP)
		return 0;
	if (!(byte_at(sk + l->tcp_mptcp) & l->tcp_mptcp_is))
		return 0;
	sk = word_at(sk + l->tcp_subflow);
	return sk ? word_at(sk + l->subflow_of) : 0;
}

// elsewhere says whether a socket is of another network namespace than the device: that of a
// container with an interface on top of the device (macvlan, ipvlan), whose packets come by none.
static __always_inline bool elsewhere(const struct sender_memory *m, struct __sk_buff *ctx,
				      __u64 sk)
{
	const struct sender_layout *l = &m->layout;

	return l->device_net && word_at(sk + l->sock_net) !=
		       word_at(word_at((__u64)ctx + l->skb_dev) + l->device_net);
}

// sender_socket is the address of the socket of a process of this network namespace that sends the
// packet; 0 if it is forwarded, or the kernel itself sends it. What answers a SYN is of the socket
// that listens. A socket of the kernel that has a user other than root was made for a process of
// that user: AF_SMC hands the process's data to one of TCP.
__noinline __u64 sender_socket(struct __sk_buff *ctx)
{
	struct sender_memory *m = memory();
	__u64 sk = 0;
	__u8 state;

	if (!m || ctx->ingress_ifindex)
		return 0;
	bpf_probe_read_kernel(&sk, sizeof(sk), (void *)ctx + m->layout.skb_sk);
	if (!sk)
		return 0;
	state = byte_at(sk + m->layout.sock_state);
	if (state == NEW_SYN_RECV)
		sk = word_at(sk + m->layout.request_listener);
	if (!sk || state == TIME_WAIT || elsewhere(m, ctx, sk))
		return 0;
	if (byte_at(sk + m->layout.sock_kernel) & m->layout.sock_kernel_is) {
		__u64 of = whole(m, sk);

		if (!of && bpf_get_socket_uid(ctx))
			of = sk;
		return of;
	}
	return sk;
}

// sender_uid is the uid of the socket.
__noinline __u32 sender_uid(struct __sk_buff *ctx)
{
	return sender_socket(ctx) ? bpf_get_socket_uid(ctx) : NO_ID;
}

// sender_gid returns the group of the process that opened the socket. A connection that is not
// accepted yet, or already closed, has no file. Its group is the one of earlier packets; the first
// of these is of the listening socket.
__noinline __u32 sender_gid(struct __sk_buff *ctx)
{
	struct sender_memory *m = memory();
	__u64 sk = sender_socket(ctx), at, gid = NO_ID, cookie;
	struct sender_known *k;

	if (!m || !sk)
		return NO_ID;
	cookie = bpf_get_socket_cookie(ctx);
	k = &m->sockets[cookie & (KNOWN - 1)];
	at = word_at(sk + m->layout.sock_socket);
	if (at)
		at = word_at(at + m->layout.socket_file);
	if (at)
		at = word_at(at + m->layout.file_cred);
	if (at) {
		bpf_probe_read_kernel(&gid, sizeof(__u32), (void *)at + m->layout.cred_gid);
		gid = (__u32)gid;
	}
	if (gid != NO_ID)
		keep(k, cookie, 0, gid);
	else if (!recall(k, cookie, 0, &gid))
		gid = NO_ID;
	return gid;
}

// sender_user returns the user of the policy who has a uid.
__noinline __u32 sender_user(__u32 uid)
{
	struct sender_memory *m = memory();
	const struct sender_names *n;

	if (!m || uid == NO_ID)
		return NO_NAME;
	n = &m->names[m->turn & 1];
	for (int i = 0; i < NAMED; i++) {
		if (i >= n->users)
			break;
		if (n->user[i] == uid)
			return i + 1;
	}
	return 0;
}

// sender_group says the same of a gid.
__noinline __u32 sender_group(__u32 gid)
{
	struct sender_memory *m = memory();
	const struct sender_names *n;

	if (!m || gid == NO_ID)
		return NO_NAME;
	n = &m->names[m->turn & 1];
	for (int i = 0; i < NAMED; i++) {
		if (i >= n->groups)
			break;
		if (n->group[i] == gid)
			return i + 1;
	}
	return 0;
}

// sender_digest is SipHash-2-4 (Aumasson and Bernstein, 2012) of the name of so many bytes.
__noinline __u64 sender_digest(__u32 bytes, __u64 key0, __u64 key1)
{
	struct sip s = {
		key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d,
		key0 ^ 0x6c7967656e657261, key1 ^ 0x7465646279746573,
	};
	struct sender_name *w = work();

	if (!w)
		return 0;
	for (__u32 i = 0; i <= NAME / 8; i++) {
		__u64 word = w->name[i];
		bool last = 8 * (i + 1) > bytes;

		if (last) // the bytes behind it are left of an earlier name
			word = (word & ((1ULL << 8 * (bytes & 7)) - 1)) | (__u64)bytes << 56;
		s.d ^= word;
		sip_round(&s);
		sip_round(&s);
		s.a ^= word;
		if (last)
			break;
	}
	s.c ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

// sender_ends tells whether the name of so many bytes ends in some of eight.
__noinline __u32 sender_ends(__u32 bytes, __u64 end, __u64 mask)
{
	struct sender_name *w = work();
	__u64 last = 0;

	if (!w || bytes >= NAME)
		return 0;
	__builtin_memcpy(&last, (char *)w + (bytes & (NAME - 1)), sizeof(last));
	return (last & mask) == end;
}

#define SLICE 0x6563696c732e0000   // "..", ".slice"
#define SERVICE 0x656369767265732e // ".service"
#define SCOPE 0x65706f63732e0000   // "..", ".scope"
#define SIX 0xffffffffffff0000

// sender_service and sender_container find a name of the policy by its digest. Verifiers walk each
// of them once, and not for each way that leads to it. The digest is of that turn's key.
__noinline __u32 sender_service(__u64 unit, __u32 turn)
{
	struct sender_memory *m = memory();
	const struct sender_names *n;

	if (!m)
		return 0;
	n = &m->names[turn & 1];
	for (int i = 0; i < NAMED; i++) {
		if (i >= n->services)
			break;
		if (n->service[i] == unit)
			return i + 1;
	}
	return 0;
}

// sender_container also takes the cgroup below the unit, 0 where that cannot be a container.
__noinline __u32 sender_container(__u64 unit, __u64 below, __u32 turn)
{
	struct sender_memory *m = memory();
	const struct sender_names *n;

	if (!m)
		return 0;
	n = &m->names[turn & 1];
	for (int i = 0; i < NAMED * FORMS; i++) {
		__u64 name;

		if (i >= n->containers * FORMS)
			break;
		name = n->container[i];
		if (name && (name == unit || name == below))
			return i / FORMS + 1;
	}
	return 0;
}

// sender_unit finds the unit and the container of a socket by the names of its cgroups. The unit is
// the first cgroup from the root that is no slice: the owner of a unit may create any cgroups below
// it. A container has a unit of its own, or a cgroup below one that is of no unit.
__noinline __u32 sender_unit(__u64 sk)
{
	struct sender_memory *m = memory();
	struct sender_name *w = work();
	__u64 node, unit = 0, below = 0, name, digest;
	const struct sender_names *n;
	bool given = false;
	__u32 turn;

	if (!m || !w)
		return NO_NAME | NO_NAME << 8;
	turn = m->turn;
	n = &m->names[turn & 1];
	node = word_at(sk + m->layout.sock_cgroup);
	node = node ? word_at(node + m->layout.cgroup_node) : 0;
	if (!node)
		return NO_NAME | NO_NAME << 8;
	digest = 0;
	for (int i = 0; i < LEVELS; i++) {
		__u64 above = digest;
		long got;

		name = word_at(node + m->layout.node_name);
		node = word_at(node + m->layout.node_parent);
		if (!node)
			break; // the root, which has no name
		got = bpf_probe_read_kernel_str(w->name, NAME, (void *)name);
		if (got <= 1 || got > NAME)
			return NO_NAME | NO_NAME << 8;
		digest = sender_digest(got - 1, n->key[0], n->key[1]);
		if (sender_ends(got - 1, SLICE, SIX))
			continue;
		unit = digest;
		below = above;
		given = sender_ends(got - 1, SERVICE, -1) || sender_ends(got - 1, SCOPE, SIX);
	}
	if (node) // deeper than this looks
		return NO_NAME | NO_NAME << 8;
	if (!unit)
		return 0;
	return sender_service(unit, turn) |
	       sender_container(unit, given ? 0 : below, turn) << 8;
}

// sender_cgroup gives the unit in the lowest byte, and the container in the next. The name of a
// cgroup never changes, so that one look at it is enough.
__noinline __u32 sender_cgroup(struct __sk_buff *ctx)
{
	struct sender_memory *m = memory();
	__u64 sk = sender_socket(ctx), id, found;
	struct sender_known *k;
	__u32 turn;

	if (!m || !sk)
		return NO_NAME | NO_NAME << 8;
	id = bpf_skb_cgroup_id(ctx);
	turn = m->turn;
	k = &m->cgroups[id & (KNOWN - 1)];
	if (recall(k, id, turn, &found))
		return found;
	found = sender_unit(sk);
	if (id && (found & 0xff) != NO_NAME)
		keep(k, id, turn, found);
	return found;
}

// This is here only so that the object holds a whole program.
SEC("tc")
int entry(struct __sk_buff *ctx)
{
	return sender_user(sender_uid(ctx)) + sender_group(sender_gid(ctx)) + sender_cgroup(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

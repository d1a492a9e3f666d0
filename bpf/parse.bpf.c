// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// One instance of the decoder for each kind of frame. Package codegen takes the parse_* functions
// out of this object and links them to the program that it generates; the entry programs are here
// only so that the object holds whole programs.
#include "parse.h"

// A device whose packets begin with IP takes no policy that asks for tags.
static __always_inline void begin_ip(struct key *k, __u32 bytes)
{
	__builtin_memset(k, 0, __builtin_offsetof(struct key, row));
	k->bytes = bytes;
}

static __always_inline void begin(struct key *k, __u32 bytes)
{
	begin_ip(k, bytes);
	k->vlan = NO_VLAN;
	k->inner_vlan = NO_VLAN;
}

static __noinline int parse_xdp(struct env *env, struct xdp_md *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	f.len = f.data_end - f.data;
	begin(&env->key, f.len);
	return parse_ethernet(&f, &env->key, HOOK_XDP);
}

static __noinline int parse_xdp_frags(struct env *env, struct xdp_md *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	f.len = bpf_xdp_get_buff_len(ctx);
	begin(&env->key, f.len);
	return parse_ethernet(&f, &env->key, HOOK_XDP_FRAGS);
}

static __noinline int parse_tcx(struct env *env, struct __sk_buff *ctx)
{
	struct key *k = &env->key;
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};

	begin(k, f.len);
	// The stack has taken the outermost tag off the frame before tc sees it.
	if (ctx->vlan_present) {
		__u16 id = ctx->vlan_tci & 0xfff;

		k->bytes += 4;
		if (id) {
			k->tags = 1;
			k->vlan = id;
		}
	}
	return parse_ethernet(&f, k, HOOK_TCX);
}

// The same for devices whose packets begin with IP.
static __noinline int parse_xdp_ip(struct env *env, struct xdp_md *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	f.len = f.data_end - f.data;
	begin_ip(&env->key, f.len);
	return parse_ip(&f, &env->key, HOOK_XDP);
}

static __noinline int parse_xdp_frags_ip(struct env *env, struct xdp_md *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	f.len = bpf_xdp_get_buff_len(ctx);
	begin_ip(&env->key, f.len);
	return parse_ip(&f, &env->key, HOOK_XDP_FRAGS);
}

static __noinline int parse_tcx_ip(struct env *env, struct __sk_buff *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};

	begin_ip(&env->key, f.len);
	return parse_ip(&f, &env->key, HOOK_TCX);
}

// The filter of a socket is given the packet from its transport header on, and asks for the IP
// header. The kernel has cut the packet to the length that this says; one that the field cannot say
// (BIG TCP) has 0 there.
static __noinline int parse_socket(struct env *env, struct __sk_buff *ctx)
{
	struct frame f = {ctx, 0, 0, 0};
	struct key *k = &env->key;
	__u8 b[6];

	begin_ip(k, 0);
	if (pull(&f, 0, b, sizeof(b), HOOK_SOCKET))
		return TRUNCATED_IP;
	f.len = b[0] >> 4 == 6 ? 40 + (b[4] << 8 | b[5]) : b[2] << 8 | b[3];
	if ((f.len == 40 || !f.len) && merged(&f, HOOK_SOCKET))
		f.len = 40 + ctx->len;
	k->bytes = f.len;
	return parse_ip(&f, k, HOOK_SOCKET);
}

SEC("xdp")
int entry_xdp(struct xdp_md *ctx)
{
	struct env env;

	return parse_xdp(&env, ctx) ? XDP_DROP : env.key.class;
}

SEC("xdp.frags")
int entry_xdp_frags(struct xdp_md *ctx)
{
	struct env env;

	return parse_xdp_frags(&env, ctx) ? XDP_DROP : env.key.class;
}

SEC("tc")
int entry_tcx(struct __sk_buff *ctx)
{
	struct env env;

	return parse_tcx(&env, ctx) ? 2 : env.key.class;
}

SEC("xdp")
int entry_xdp_ip(struct xdp_md *ctx)
{
	struct env env;

	return parse_xdp_ip(&env, ctx) ? XDP_DROP : env.key.class;
}

SEC("xdp.frags")
int entry_xdp_frags_ip(struct xdp_md *ctx)
{
	struct env env;

	return parse_xdp_frags_ip(&env, ctx) ? XDP_DROP : env.key.class;
}

SEC("tc")
int entry_tcx_ip(struct __sk_buff *ctx)
{
	struct env env;

	return parse_tcx_ip(&env, ctx) ? 2 : env.key.class;
}

SEC("socket")
int entry_socket(struct __sk_buff *ctx)
{
	struct env env;

	return parse_socket(&env, ctx) ? 0 : -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum malformed *unused_malformed __attribute__((unused));
const enum transport *unused_transport __attribute__((unused));

package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"levee/internal/bench"
	"levee/internal/lab/contender"
	"levee/internal/lab/demo"
	"levee/internal/lab/gen"
	"levee/internal/lab/talk"
	"levee/internal/packet/template"
	"levee/profiles"
)

// What is usual where a service is behind a profile.
const (
	forgedRate     = 1e6 // packets a second
	joinsPerSecond = 25
	burst          = 32 // packets of the flood that come at once, as network cards hand them over
)

// forgery holds the templates of a flood and the sources that its packets claim.
type forgery struct {
	name, what string
	lines      func(*talk.Service) []string
	from       func(idle []netip.Addr) string
}

var forgeries = []forgery{
	{"random", "first packets of clients that %s, from drawn addresses", firsts, fromDrawn},
	{"idle", "first packets of clients that %s, in the names of clients with sessions", firsts,
		func(idle []netip.Addr) string {
			var list []string
			for _, a := range idle {
				list = append(list, a.String())
			}
			return "{ " + strings.Join(list, ", ") + " } random"
		}},
	{"stray", "packets as of clients that %s and go on, from drawn addresses",
		func(t *talk.Service) []string { return t.Stray }, fromDrawn},
}

func firsts(t *talk.Service) []string { return t.Forged }

func fromDrawn([]netip.Addr) string { return "16.0.0.0/4 random" }

func forgeryName(f forgery) string { return f.name }

// ForgedNames are the floods against services behind profiles.
func ForgedNames() []string { return bench.Names(forgeries, forgeryName) }

// ProfileNames are the profiles whose services are measured.
func ProfileNames() []string { return bench.Names(talk.All, talk.Name) }

// The defences of a service behind a profile.
const (
	noDefence      = "none"
	nftDefence     = "nft conntrack"
	leveeUnproven  = "levee unproven"
	leveeByProfile = "levee"
	foreknownAlone = "foreknown"
)

// ProfileDefenceNames are the defences of a service behind a profile.
func ProfileDefenceNames() []string {
	return []string{noDefence, nftDefence, leveeUnproven, leveeByProfile, foreknownAlone}
}

// defence is the defence of that name for a service.
func defence(name string, s *talk.Service) (contender.Defence, error) {
	const rest = "drop fragments as \"fragment\"\npass tcp port %d as \"tcp\"\ndefault drop\n"
	switch name {
	case nftDefence:
		return contender.NFTProfile(s.Port, strangers(s)), nil
	case leveeUnproven:
		text, err := unproven(s.Name)
		return contender.LeveeAs(name, s.Name+" without proof",
			fmt.Appendf(nil, text+rest, s.Port)), err
	case leveeByProfile:
		return contender.LeveeAs(name, "use "+s.Name,
			fmt.Appendf(nil, "use %s\n"+rest, s.Name, s.Port)), nil
	case foreknownAlone:
		return contender.LeveeAs(name, "a policy that knows all visitors", []byte(foreknown)), nil
	}
	return contender.Nothing(), nil
}

var (
	parameter = regexp.MustCompile(`(?m)^    parameter (\S+) \S+ (.+) "[^"]*"$`)
	proving   = regexp.MustCompile(`(?m)^(prove |greylist |cookie a2s |.* proven ).*\n`)
	cookie    = regexp.MustCompile(`(?m)^cookie dns (.*) above (\S+) as `)
	testBlock = regexp.MustCompile(`(?ms)^test .*?^}\n`)
)

// given are the values that a profile has for its parameters.
func given(text string) map[string]string {
	values := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		values[m[1]] = m[2]
	}
	return values
}

// unproven is a profile as a part of a policy without what proves clients, and what asks for it:
// limits are for everybody, and in the place of a cookie stands its rate as a limit.
func unproven(name string) (string, error) {
	text, err := profiles.Text(name)
	if err != nil {
		return "", err
	}
	head, rules, _ := strings.Cut(string(text), "\n}\n")
	rules = testBlock.ReplaceAllString(rules, "")
	rules = cookie.ReplaceAllString(rules, "limit $1 rate $2 as ")
	rules = proving.ReplaceAllString(strings.ReplaceAll(rules, " not proven", ""), "")
	for word, value := range given(head) {
		rules = strings.ReplaceAll(rules, "$"+word, value)
	}
	return strings.ReplaceAll(rules, "$", ""), nil // what is left are the profile's sets
}

// strangers is the budget of a profile for all who are not proven together, packets a second as a
// policy says them.
func strangers(s *talk.Service) string {
	text, err := profiles.Text(s.Name)
	if err != nil {
		return ""
	}
	v := given(string(text))
	return v["strangers"] + v["queries"] // a profile has one of them
}

var profileCaveats = []string{
	"each request counts from when it was due (an open loop), and fails after a second; a client " +
		"repeats what nobody answers as its protocol has it, within that second",
	"join: the whole exchange of a client from a port of its own; session: a packet and its " +
		"answer of a session that began before the flood; return: a join from an address that " +
		"has such sessions, in whose name the flood idle comes",
	"servers and clients are those of the lab: the exchanges of the protocols, with contents of " +
		"no meaning; a join costs a real server more, most of all one that computes keys",
	"nft conntrack passes what conntrack knows an answer of, and the profile's budget of others; " +
		"levee unproven is the profile without `prove`, `cookie` and `greylist`",
	"foreknown is a policy that names the clients' networks, which no defence can know: latency " +
		"behind it beside drawn addresses is the machine's, whose cores clients and flood share",
}

// runProfiles measures services behind their profiles.
func runProfiles(ctx context.Context, o Options) (r *Report, err error) {
	wrong := o.complete()
	services, wrongProfile := bench.Choose("profile of a service of the lab", o.Profiles, talk.All,
		talk.Name)
	floods, wrongFlood := bench.Choose("flood", o.Floods, forgeries, forgeryName)
	chosen, wrongDefence := bench.Choose("defence", o.Defences, ProfileDefenceNames(),
		func(s string) string { return s })
	if err := bench.Ready("service", wrong, wrongProfile, wrongFlood, wrongDefence); err != nil {
		return nil, err
	}
	s, err := demo.Open(ctx, o.Self)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r = &Report{
		Head: o.Head(demo.Core(s.Server.Devices[0]),
			append(slices.Clone(profileCaveats), of(o.Rounds))...),
		service: "services behind profiles", requests: "joins", floodShare: 0.9,
		Before: o.Before, During: o.During, After: o.After, Rate: o.Rate, Requests: o.Requests,
		Rounds: o.Rounds, Patience: o.Patience,
	}
	if o.Patience > demo.Patience {
		r.Caveats = append(r.Caveats, fmt.Sprintf("each request fails after %v here; those that "+
			"are due in the last %v of the flood are left out: they may be served behind it",
			o.Patience, o.Patience-demo.Patience))
	}
	each := len(services) * len(floods) * len(chosen)
	for round := range o.Rounds {
		for n, i := range bench.InTurn(round, each) {
			t, f := services[i/len(chosen)/len(floods)], floods[i/len(chosen)%len(floods)]
			name := chosen[i%len(chosen)]
			if len(f.lines(t)) == 0 {
				continue // it has no sessions
			}
			o.Tell(fmt.Sprintf("%s, flood %s, %s", t.Name, f.name, name), round*each+n,
				each*o.Rounds)
			if err = r.talked(ctx, &o, s, t, f, name, round); err != nil || ctx.Err() != nil {
				return bench.Ended(ctx, r, &r.Head, errors.Join(bench.Interrupted(ctx), err))
			}
		}
	}
	return bench.Ended(ctx, r, &r.Head, bench.Interrupted(ctx))
}

// talked is a run: defence up, clients come, quiet, flood, quiet, clients go, defence down. It
// becomes a run of the report for each kind of request.
func (r *Report) talked(ctx context.Context, o *Options, s *demo.Stage, t *talk.Service, f forgery,
	name string, round int) (err error) {
	run := Once{Round: round, Flood: t.Name + " " + f.name, Defence: name,
		What: fmt.Sprintf(f.what, t.What)}
	d, err := defence(name, t)
	if err != nil {
		return err
	}
	config, err := forgedBy(t, f, s)
	if err != nil {
		return err
	}
	config.Rate, config.Seed = r.Rate, o.Seed
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	c := &clerk{}
	err = d.Install(ctx, contender.Site{Host: s.Server, Device: s.Server.Devices[0].Name})
	if err == nil {
		err = s.Talking(ctx, t, o.Requests, o.Patience, c.enter,
			func() error { return r.watched(ctx, c, &run, config) })
	}
	switch {
	case ctx.Err() != nil:
		return nil // said by its caller
	case errors.Is(err, contender.ErrMissing):
		run.Missing = err.Error()
		r.Runs = append(r.Runs, &run)
		return nil
	case err != nil:
		return fmt.Errorf("%s, flood %s, %s: %w", t.Name, f.name, name, err)
	}
	for _, what := range []string{demo.Join, demo.GoOn, demo.Return} {
		// Where drawn addresses are forged, who returns is as who comes.
		if what == demo.GoOn && !t.GoesOn() || what == demo.Return && f.name != "idle" {
			continue
		}
		part := run
		part.Flood += " " + what
		part.Requests = slices.DeleteFunc(slices.Clone(run.Requests),
			func(q Outcome) bool { return q.What != what })
		r.Runs = append(r.Runs, &part)
	}
	return nil
}

// forgedBy is a flood of packets as a service's clients send them.
func forgedBy(t *talk.Service, f forgery, s *demo.Stage) (gen.Config, error) {
	out := s.World.Devices[0]
	var text strings.Builder
	for _, line := range f.lines(t) {
		fmt.Fprintf(&text, "ipv4 udp from %s to %s ttl 64 from port 1024-65535 random port %d %s\n",
			f.from(s.Idle()), s.Server.Devices[0].IPv4.Addr(), t.Port, line)
	}
	packets, ds := template.Parse("flood", []byte(text.String()))
	if ds.HasErrors() {
		return gen.Config{}, fmt.Errorf("the flood %q: %v", text.String(), ds)
	}
	return gen.Config{Namespace: s.World.Namespace, Device: out.Name, CPU: out.CPU,
		Burst: burst, Template: packets}, nil
}

package lsp

import (
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/use"
	"levee/profiles"
)

// profileNames lists the profiles that come with levee, each with its purpose.
func profileNames() (all []item) {
	for _, name := range profiles.Names() {
		it := item{Label: name, Kind: kindText}
		if p := shipped(name); p != nil {
			it.Documentation = &markup{"markdown", p.About}
		}
		all = append(all, it)
	}
	return all
}

// parameters returns the parameters of a profile that levee comes with.
func parameters(name string) (all []item) {
	if p := shipped(name); p != nil {
		for _, q := range p.Parameters {
			all = append(all, item{Label: q.Name, Kind: kindKeyword,
				Documentation: &markup{"markdown", q.Type + ": " + q.About + ". Without it: " +
					q.Default}})
		}
	}
	return append(all, keyword("as"))
}

// shipped returns the head of a profile that comes with levee, nil if there is none of that name.
func shipped(name string) *use.Head {
	text, err := profiles.Text(name)
	if err != nil {
		return nil
	}
	head, _, _ := resolve.ParseProfile(name, text, setfile.None)
	return head
}

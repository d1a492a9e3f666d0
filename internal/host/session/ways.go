package session

// Ways are the interfaces that packets come up to which arrive on one.
type Ways struct {
	Untagged []int       // the interface itself, and those that receive its untagged frames
	Tagged   map[int]int // by the id of one tag
	VRF      bool        // the interface is of a VRF
}

// WaysUp tells them of an interface.
func WaysUp(dev string) (*Ways, error) {
	above, err := interfacesAbove(dev)
	if err != nil {
		return nil, err
	}
	w := &Ways{Tagged: map[int]int{}}
	for index, u := range above {
		a := u.link.Attrs()
		w.VRF = w.VRF || u.link.Type() == "vrf"
		switch len(u.tags) {
		case 0:
			w.Untagged = append(w.Untagged, index)
		case 1:
			// A port of a bridge or a bond has no routes.
			if master, ok := above[a.MasterIndex]; !ok || master.link.Type() == "vrf" {
				w.Tagged[int(u.tags[0])] = index
			}
		}
	}
	return w, nil
}

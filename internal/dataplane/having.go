package dataplane

import "levee/internal/dataplane/store"

// having lists the attachments but one that have their policy together.
func having(s *store.Store, together, except string) (out []*attachment, err error) {
	if together == "" {
		return nil, nil
	}
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if key == except {
			continue
		}
		a, err := open(s, key)
		if err != nil {
			continue // not this command's business
		}
		if a.together() == together {
			out = append(out, a)
		} else {
			a.Close()
		}
	}
	return out, nil
}

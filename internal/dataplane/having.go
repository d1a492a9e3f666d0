package dataplane

// having lists the attachments but one that have their policy together.
func (s *store) having(together, except string) (out []*attachment, err error) {
	if together == "" {
		return nil, nil
	}
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if key == except {
			continue
		}
		a, err := s.open(key)
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

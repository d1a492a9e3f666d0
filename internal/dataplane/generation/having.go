package generation

import (
	"levee/internal/dataplane/store"

	"levee/internal/dataplane/attach"
)

// Having lists the attachments but one that have their policy together.
func Having(s *store.Store, together, except string) (out []*attach.Attachment, err error) {
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
		a, err := attach.Open(s, key)
		if err != nil {
			continue // not this command's business
		}
		if a.Together() == together {
			out = append(out, a)
		} else {
			a.Close()
		}
	}
	return out, nil
}

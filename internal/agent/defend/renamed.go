package defend

import (
	"levee/internal/agent/inforce"
)

// follow has what is known of interfaces go on under the names that they have now: what is usual
// there, incidents that are not closed, and rules of writers. It is false while somebody watches
// under one of the names before, who puts down what he knows when he ends.
func (m *Manager) follow(all []inforce.State) bool {
	names, now := map[int]string{}, map[string]string{} // names now, by index and by those before
	for _, s := range all {
		names[s.Index] = s.Dev
		if was := m.names[s.Index]; was != "" && was != s.Dev {
			now[was] = s.Dev
		}
	}
	for was, dev := range now {
		if m.watchers[was] != nil || m.watchers[dev] != nil {
			return false
		}
	}
	m.names = names
	if len(now) == 0 {
		return true
	}
	for was, dev := range now {
		m.Log("%s is called %s now, and what is known of it goes on", was, dev)
	}
	if m.Baselines != nil {
		m.Baselines.rename(now)
	}
	if m.Book != nil {
		wrote(m.files.rules, m.Book.Path(), m.Book.Rename(now))
	}
	if m.Incidents == nil {
		return true
	}
	for _, i := range m.Incidents.List() {
		if dev := now[i.Dev]; dev != "" && i.Closed == nil {
			i.Dev = dev
			wrote(m.files.incidents, m.Incidents.Path(), m.Incidents.Put(i))
		}
	}
	return true
}

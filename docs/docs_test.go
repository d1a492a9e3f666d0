package docs

import "testing"

// TestEachTopicIsAPageOfItsOwn: what Topics lists can be shown, and no two names show one page.
func TestEachTopicIsAPageOfItsOwn(t *testing.T) {
	by := map[string]string{}
	for _, topic := range Topics() {
		text, ok := Page(topic)
		if !ok || text == "" {
			t.Errorf("%s has no page", topic)
		}
		if other, twice := by[text]; twice {
			t.Errorf("%s and %s are one page", topic, other)
		}
		by[text] = topic
	}
	for _, topic := range []string{"", "README", "../docs", "guides", "no-such-page"} {
		if _, ok := Page(topic); ok {
			t.Errorf("%q is a page", topic)
		}
	}
	short, _ := Page("language")
	if long, ok := Page("reference/language"); !ok || long != short {
		t.Error("reference/language is not the page language")
	}
}

// Package notify tells people and programs of what happens: by a webhook, by mail, or by a command.
//
// In go live events and a file of targets; out go messages, each target's at its own pace and at
// most as many as its limit allows. What a limit holds back is told in one summary. It never holds
// up who makes events: a queue that is full loses the newest, and counts them. It never runs a
// shell, follows no redirect, and shows no secret.
package notify

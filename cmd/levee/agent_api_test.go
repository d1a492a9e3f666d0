package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// askAPI is the command `api [-token FILE] [-socket PATH] METHOD URL [BODY]` of the stories, with
// a file that has a token. It prints the status and the body, and fails unless the status is 200.
func askAPI() {
	token, socket := flag.String("token", "", ""), flag.String("socket", "", "")
	flag.Parse()
	req, err := http.NewRequest(flag.Arg(0), flag.Arg(1), strings.NewReader(flag.Arg(2)))
	if err != nil {
		fail(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if *token != "" {
		req.Header.Set("Authorization", "Bearer "+readToken(*token))
	}
	client := &http.Client{Timeout: time.Minute}
	if *socket != "" {
		client.Transport = &http.Transport{DialContext: func(context.Context, string,
			string) (net.Conn,
			error) {
			return net.Dial("unix", *socket)
		}}
	}
	res, err := client.Do(req)
	if err != nil {
		fail(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%d %s\n", res.StatusCode, text)
	if res.StatusCode != http.StatusOK {
		os.Exit(1)
	}
}

func readToken(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		fail(err)
	}
	return strings.TrimSpace(string(text))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

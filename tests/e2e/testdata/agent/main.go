// Agent is a program as a person writes one with the SDKs: it knows no address and
// no key but what they read from its environment, and streams.
//
//	agent anthropic [hold]   a message, streamed; with hold it waits for a line of
//	                         its input after the first event
//	agent openai             a chat completion, streamed
//	agent as TOKEN           a message with another token; prints the status
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go"
	openaioption "github.com/openai/openai-go/option"
)

func main() {
	ctx := context.Background()
	var err error
	switch os.Args[1] {
	case "anthropic":
		err = message(ctx, len(os.Args) > 2, anthropicoption.WithMaxRetries(0))
	case "openai":
		err = completion(ctx)
	case "as":
		err = message(ctx, false, anthropicoption.WithMaxRetries(0), anthropicoption.WithAPIKey(os.Args[2]))
		var refused *anthropic.Error
		if errors.As(err, &refused) {
			fmt.Println("status", refused.StatusCode)
			return
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func message(ctx context.Context, hold bool, o ...anthropicoption.RequestOption) error {
	client := anthropic.NewClient(o...)
	stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: "m", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
	defer stream.Close()
	var all anthropic.Message
	for stream.Next() {
		if err := all.Accumulate(stream.Current()); err != nil {
			return err
		}
		if hold {
			hold = false
			fmt.Println("begun")
			if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
				return err
			}
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	fmt.Println("message", all.Content[0].Text, all.Usage.InputTokens, all.Usage.OutputTokens)
	return nil
}

func completion(ctx context.Context) error {
	client := openai.NewClient(openaioption.WithMaxRetries(0))
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
	defer stream.Close()
	text := ""
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			text += c.Delta.Content
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	fmt.Println("completion", text)
	return nil
}

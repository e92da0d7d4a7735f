package services

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"elbowroom.dev/testbed/internal/network"
)

const timeToLive = 5 // seconds that a client may remember an answer

// serveNames answers questions for names of the cluster, over UDP and TCP.
func serveNames(ctx context.Context, known *directory) error {
	address := network.DNS + ":53"
	packets, err := net.ListenPacket("udp4", address)
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { packets.Close(); streams.Close() })
	go answerPackets(packets, known)
	go answerStreams(streams, known)
	return nil
}

func answerPackets(packets net.PacketConn, known *directory) {
	buffer := make([]byte, 4096)
	for {
		size, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		if reply, ok := answerMessage(buffer[:size], known); ok {
			_, _ = packets.WriteTo(reply, from) // a lost answer is asked for again
		}
	}
}

func answerStreams(streams net.Listener, known *directory) {
	AcceptAll(streams, func(client *net.TCPConn) { answerStream(client, known) })
}

func answerStream(client *net.TCPConn, known *directory) {
	defer client.Close()
	for client.SetDeadline(time.Now().Add(10*time.Second)) == nil {
		var length [2]byte
		if _, err := io.ReadFull(client, length[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(client, question); err != nil {
			return
		}
		reply, ok := answerMessage(question, known)
		if !ok {
			return
		}
		if _, err := client.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answerMessage answers one question. Names outside the cluster do not exist: the testbed has no way out.
func answerMessage(message []byte, known *directory) (reply []byte, ok bool) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.Response {
		return nil, false
	}
	question, err := parser.Question()
	if err != nil {
		return nil, false
	}
	ips, found := known.addresses(question.Name.String())
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	if !found {
		answer.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA {
		for _, ip := range ips {
			address := net.ParseIP(ip).To4()
			if address == nil {
				continue
			}
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: timeToLive},
				Body:   &dnsmessage.AResource{A: [4]byte(address)},
			})
		}
	}
	reply, err = answer.Pack()
	return reply, err == nil
}
